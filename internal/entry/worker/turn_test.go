//go:build failpoint

package worker

import (
	"testing"

	"github.com/google/uuid"

	"triprize/internal/platform/failpoint"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

func TestBatchesAndCancellationsOfALaneTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	user, moments := uuid.NewString(), 0
	alone := func() {
		if moments++; w.lanes[0].turn.TryLock() {
			w.lanes[0].turn.Unlock()
			t.Error("somebody else could have the turn")
		}
	}
	bought := fixture.Buy(t, w.db, id, user, 0, 1)
	back := fixture.Accept(t, w.db, fixture.CancelRequest(t, id, bought))
	atCommit(t, user, alone)
	t.Cleanup(failpoint.Set("cancellation.commit", user, alone))
	if _, err := w.lanes[0].flush(t.Context(), []*item{{Ref: order(t, w, id, user).Jobs[0]}}); err != nil {
		t.Fatal(err)
	}
	if err := w.settleCancellations(t.Context(), back, false); err != nil {
		t.Fatal(err)
	}
	if moments != 2 {
		t.Errorf("%d moments", moments)
	}
	expect(t, w.db, back[0].ID, job.Succeeded, 1)
}

// A job that is tried alone holds everything back and then wants its lane's turn: a
// batch that had the turn and waited for it would be in a deadlock with it.
func TestABatchThatIsHeldBackDoesNotHaveTheTurn(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	it := &item{Ref: order(t, w, id, uuid.NewString()).Jobs[0]}
	back := takeBack(t, w, id, 1)
	deliveredBefore(t, w, 2, back[0].ID)
	flushed := make(chan error, 1)
	w.exclusive.Lock()
	go func() {
		_, err := w.lanes[0].flush(t.Context(), []*item{it})
		flushed <- err
	}()
	awaitMutex(t, 1)
	free := w.lanes[0].turn.TryLock()
	if free {
		w.lanes[0].turn.Unlock()
	} else {
		t.Error("it has the turn")
	}
	w.exclusive.Unlock()
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	if err := w.settleCancellations(t.Context(), back, true); err != nil {
		t.Error(err)
	}
	expect(t, w.db, back[0].ID, job.Succeeded, 3)
}
