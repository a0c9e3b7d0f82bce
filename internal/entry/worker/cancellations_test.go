package worker

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/queue"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
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
		if err := w.cancellations.jobs(t.Context(), []job.Ref{ref}, true); err != nil {
			t.Error(err)
		}
		expect(t, w.db, ref.ID, job.Succeeded, want)
	}
	refs := takeBack(t, w, id, 2)
	deliveredBefore(t, w, 5, refs[0].ID)
	if err := w.cancellations.jobs(t.Context(), refs[:1], true); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, w.db, refs[0].ID); j.State != job.Failed || j.Problem.Code != fault.InternalError {
		t.Errorf("after all its deliveries it is %s, %+v", j.State, j.Problem)
	}
	if err := w.cancellations.jobs(t.Context(), refs[1:], false); err != nil {
		t.Error(err)
	}
	expect(t, w.db, refs[1].ID, job.Succeeded, 1)
	for _, again := range []bool{true, false} {
		if err := w.cancellations.jobs(t.Context(), refs, again); err != nil {
			t.Errorf("a delivery after the end: %v", err)
		}
	}
	fixture.Sound(t, w.db)
}

func TestACancellationThatFailsDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	for _, deliveries := range [][]bool{{false}, {true, true}} { // the second time in a group, the third alone
		refs := takeBack(t, w, id, 3)
		spoil(t, w, refs[0].ID)
		for _, again := range deliveries {
			if err := w.cancellations.jobs(t.Context(), refs, again); err == nil || errors.Is(err, queue.ErrSnoozed) {
				t.Errorf("got %v", err)
			}
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
	w := newWorker(t, patient)
	id := fixture.Campaign(t, w.db, fixture.Draft(3))
	ref := takeBack(t, w, id, 1)[0]
	unlock := lock(t, w, id)
	deliveredBefore(t, w, 2, ref.ID)
	for range 3 {
		if err := w.cancellations.jobs(t.Context(), []job.Ref{ref}, true); !errors.Is(err, errLocked) {
			t.Errorf("got %v", err)
		}
		expect(t, w.db, ref.ID, job.Queued, 2)
	}
	unlock()
	if err := w.cancellations.jobs(t.Context(), []job.Ref{ref}, true); err != nil {
		t.Error(err)
	}
	expect(t, w.db, ref.ID, job.Succeeded, 3)
}

// However many cancellations come at once, they wait without a connection, and share
// transactions: a flood of those that are refused too.
func TestAFloodOfCancellationsIsAFewTransactions(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(6))
	bought := fixture.Buy(t, w.db, id, "a", 0, 1)
	requests := make([]job.Request, 200)
	for i := range requests {
		requests[i] = fixture.CancelRequest(t, id, bought)
	}
	refs := fixture.Accept(t, w.db, requests...)
	begun, goOn := make(chan struct{}), make(chan struct{})
	first, letGoOn := sync.OnceFunc(func() { close(begun); <-goOn }), sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(letGoOn)
	made := record(w.cancellations, func(sale.LockWait) error { first(); return nil })
	batches := w.shards[0].batches[job.KindCancellation]
	if err := batches.Submit(&item{Ref: job.Ref{ID: uuid.New(), CampaignID: id}}); err != nil { // a batch of its own, before the others
		t.Fatal(err)
	}
	<-begun
	var all sync.WaitGroup
	for _, ref := range refs {
		all.Go(func() {
			if err := w.cancellations.jobs(t.Context(), []job.Ref{ref}, false); err != nil {
				t.Error(err)
			}
		})
	}
	servers.Eventually(t, "all wait", func() bool { return batches.Pending() == len(refs) })
	if n := w.db.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are held", n)
	}
	letGoOn()
	all.Wait()
	succeeded := 0
	for _, ref := range refs {
		if j := fixture.Job(t, w.db, ref.ID); j.State == job.Succeeded {
			succeeded++
		} else if j.Problem == nil || j.Problem.Code != fault.StateConflict {
			t.Errorf("it is %s, %+v", j.State, j.Problem)
		}
	}
	if n := made.count(); n != 2 || succeeded != 1 {
		t.Errorf("%d transactions, %d cancellations succeeded", n, succeeded)
	}
	fixture.Sound(t, w.db)
}
