package worker

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// takeBack sells one position to each of n users and asks to cancel the purchases.
func takeBack(t *testing.T, w *Worker, campaignID uuid.UUID, n int) []job.Ref {
	t.Helper()
	requests := make([]job.Request, n)
	for i := range requests {
		requests[i] = fixture.CancelRequest(t, campaignID, fixture.Buy(t, w.db, campaignID, uuid.NewString(), 0, 1))
	}
	return fixture.Accept(t, w.db, requests...)
}

func TestACancellationIsTriedAloneFromItsThirdDeliveryOn(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	for before, want := range map[int]int{0: 2, 1: 2, 2: 3, 4: 5} {
		ref := takeBack(t, w, id, 1)[0]
		deliveredBefore(t, w, before, ref.ID)
		if err := w.settleCancellations(t.Context(), []job.Ref{ref}, true); err != nil {
			t.Error(err)
		}
		expect(t, w.db, ref.ID, job.Succeeded, want)
	}
	refs := takeBack(t, w, id, 2)
	deliveredBefore(t, w, 5, refs[0].ID)
	if err := w.settleCancellations(t.Context(), refs[:1], true); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, w.db, refs[0].ID); j.State != job.Failed || j.Problem.Code != fault.InternalError {
		t.Errorf("after all its deliveries it is %s, %+v", j.State, j.Problem)
	}
	if err := w.settleCancellations(t.Context(), refs[1:], false); err != nil {
		t.Error(err)
	}
	expect(t, w.db, refs[1].ID, job.Succeeded, 1)
	for _, again := range []bool{true, false} {
		if err := w.settleCancellations(t.Context(), refs, again); err != nil {
			t.Errorf("a delivery after the end: %v", err)
		}
	}
	fixture.Sound(t, w.db)
}

func TestACancellationThatFailsDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	for _, again := range []bool{false, true} {
		refs := takeBack(t, w, id, 3)
		spoil(t, w, refs[0].ID)
		if err := w.settleCancellations(t.Context(), refs, again); err == nil || errors.Is(err, queue.ErrLater) {
			t.Errorf("got %v", err)
		}
		if j := fixture.Job(t, w.db, refs[0].ID); j.State != job.Queued {
			t.Errorf("the broken one is %s", j.State)
		}
		for _, ref := range refs[1:] {
			if !final(t, w, ref.ID) {
				t.Error("one behind it was not done")
			}
		}
	}
}

func TestACancellationWhoseCampaignIsLockedIsPutOffAndNeverCounted(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	id := fixture.Campaign(t, w.db, fixture.Draft(3))
	ref := takeBack(t, w, id, 1)[0]
	unlock := lock(t, w, id)
	for range 3 {
		if err := w.settleCancellations(t.Context(), []job.Ref{ref}, false); !errors.Is(err, queue.ErrLater) {
			t.Errorf("got %v", err)
		}
	}
	expect(t, w.db, ref.ID, job.Queued, 0)
	deliveredBefore(t, w, 2, ref.ID)
	if err := w.settleCancellations(t.Context(), []job.Ref{ref}, true); !errors.Is(err, queue.ErrLater) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, ref.ID, job.Queued, 2)
	unlock()
	if err := w.settleCancellations(t.Context(), []job.Ref{ref}, true); err != nil {
		t.Error(err)
	}
	expect(t, w.db, ref.ID, job.Succeeded, 3)
}

// Otherwise the cancellations of a busy campaign would wait for its row with every
// connection that the process has.
func TestManyCancellationsHoldNoConnectionWhileTheyWaitForTheirLane(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	refs := takeBack(t, w, fixture.Campaign(t, w.db, fixture.Draft(6)), 20)
	w.lanes[0].turn.Lock()
	var all sync.WaitGroup
	for _, ref := range refs {
		all.Go(func() {
			if err := w.settleCancellations(t.Context(), []job.Ref{ref}, false); err != nil {
				t.Error(err)
			}
		})
	}
	awaitMutex(t, len(refs))
	if n := w.db.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are held", n)
	}
	for _, ref := range refs {
		expect(t, w.db, ref.ID, job.Queued, 0)
	}
	w.lanes[0].turn.Unlock()
	all.Wait()
	for _, ref := range refs {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	fixture.Sound(t, w.db)
}
