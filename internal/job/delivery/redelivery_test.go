//go:build failpoint

package delivery

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// atCommit calls do whenever a batch with an order of user is about to commit.
func atCommit(t *testing.T, user string, do func()) {
	t.Helper()
	t.Cleanup(failpoint.Set("sale.commit", user, do))
}

// someone returns the name of a user who is in no other test.
func someone() string { return uuid.NewString() }

func TestABatchRunsAloneInItsShardAndWhileNoJobIsTriedAlone(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	a, b := fixture.Campaign(t, w.db, fixture.Draft(4)), fixture.Campaign(t, w.db, fixture.Draft(4))
	user, batches := someone(), 0
	alone := func() {
		if batches++; w.exclusive.TryLock() {
			w.exclusive.Unlock()
			t.Error("a job could be tried alone at the same time")
		}
		if w.shards[0].running.TryLock() {
			w.shards[0].running.Unlock()
			t.Error("another batch could have the turn")
		}
	}
	back := fixture.Accept(t, w.db, fixture.CancelRequest(t, a, fixture.Buy(t, w.db, a, user, 0, 1)))
	atCommit(t, user, alone)
	t.Cleanup(failpoint.Set("cancellation.commit", user, alone))
	for _, jobs := range [][]job.Ref{order(t, w, a, user).Jobs, slices.Concat(order(t, w, a, user).Jobs, order(t, w, b, user).Jobs)} {
		servers.NoError(t, w.purchases.jobs(t.Context(), jobs, false))
	}
	if err := w.cancellations.jobs(t.Context(), back, false); err != nil || batches != 3 {
		t.Errorf("%d batches, %v", batches, err)
	}
}

func TestAFirstDeliveryIsNotCountedASecondIsTriedInAGroupAndAThirdAlone(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(6))
	first, second, other, third := someone(), someone(), someone(), someone()
	byUser := make(map[string]job.Ref)
	for _, ref := range order(t, w, id, third, first, second, other).Jobs {
		byUser[*fixture.Job(t, w.db, ref.ID).UserID] = ref
	}
	deliveredBefore(t, w, 2, byUser[third].ID)
	deliveredBefore(t, w, 1, byUser[other].ID)
	var seen []string
	atCommit(t, second, func() {
		seen = append(seen, "second")
		expect(t, w.db, byUser[second].ID, job.Queued, 2) // counted and committed before it is tried
		expect(t, w.db, byUser[other].ID, job.Queued, 2)
		expect(t, w.db, byUser[third].ID, job.Queued, 2) // its turn comes
		if !heldBack(w) {
			t.Error("others could be tried at the same time")
		}
	})
	atCommit(t, other, func() {
		seen = append(seen, "other")
		expect(t, w.db, byUser[second].ID, job.Queued, 2) // in the same transaction
	})
	atCommit(t, third, func() {
		seen = append(seen, "third")
		expect(t, w.db, byUser[third].ID, job.Queued, 3)
		expect(t, w.db, byUser[second].ID, job.Succeeded, 2)
		if !heldBack(w) {
			t.Error("others could be tried at the same time")
		}
	})
	atCommit(t, first, func() {
		seen = append(seen, "first")
		expect(t, w.db, byUser[first].ID, job.Queued, 0)
		if heldBack(w) {
			t.Error("a first delivery holds others back")
		}
	})
	servers.NoError(t, w.purchases.jobs(t.Context(), []job.Ref{byUser[third], byUser[second], byUser[other]}, true))
	servers.NoError(t, w.purchases.jobs(t.Context(), []job.Ref{byUser[first]}, false))
	if !slices.Equal(seen, []string{"second", "other", "third", "first"}) {
		t.Errorf("tried in the order %v", seen)
	}
	for user, attempts := range map[string]int{first: 1, second: 2, other: 2, third: 3} {
		expect(t, w.db, byUser[user].ID, job.Succeeded, attempts)
	}
}

// A job that panics stands for one that kills its worker; after a death the queue
// delivers the message again, and here the test does.
func TestAJobThatFailsEveryTimeIsGivenUpAndItsNeighboursSucceed(t *testing.T) {
	t.Parallel()
	w := newWorker(t, maxDeliveries(4))
	id := fixture.Campaign(t, w.db, fixture.Draft(6))
	poison := someone()
	message := order(t, w, id, someone(), someone(), poison, someone(), someone())
	tried := 0
	atCommit(t, poison, func() { tried++; panic("a poisonous job") })
	send := func(redelivered bool) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = errPanicked
			}
		}()
		return deliver(t, w, w.purchases.jobs, message, redelivered)
	}
	if err := send(false); err == nil {
		t.Error("the first delivery went well")
	}
	poisonous := message.Jobs[2].ID
	for i, ref := range message.Jobs {
		if want := i != 2; final(t, w, ref.ID) != want {
			t.Errorf("after the first delivery job %d is final: %v", i, !want)
		}
	}
	for delivery := 2; delivery <= 4; delivery++ {
		before := tried
		if err := send(true); err == nil {
			t.Errorf("delivery %d went well", delivery)
		}
		expect(t, w.db, poisonous, job.Queued, delivery)
		if n := tried - before; n != 1 {
			t.Errorf("delivery %d tried it %d times", delivery, n)
		}
	}
	before := tried
	if err := send(true); err != nil || tried != before {
		t.Errorf("the last delivery: %v, tried %d times", err, tried-before)
	}
	if j := fixture.Job(t, w.db, poisonous); j.State != job.Failed || j.Problem.Code != fault.InternalError {
		t.Errorf("it is %s, %+v", j.State, j.Problem)
	}
	w.Close()
	if n := messages(t, w); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	fixture.Sound(t, w.db)
}

func TestADrawThatAnotherWorkerTookOverIsPutOffAndNotCounted(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(3))
	ref := fixture.SellOut(t, w.db, id)
	deliveredBefore(t, w, 2, ref.ID)
	var heir campaign.Execution
	remove := failpoint.Set("draw.record", id.String(), func() {
		_, err := w.db.Exec(t.Context(), `UPDATE campaigns SET execution_locked_at = clock_timestamp() - interval '1 hour' WHERE id = $1`, id)
		if err != nil {
			t.Error(err)
		}
		var ok bool
		if heir, ok, err = campaign.Claim(t.Context(), w.db, id, "a worker", time.Hour); err != nil || !ok {
			t.Errorf("not taken over: %v, %v", ok, err)
		}
	})
	defer remove()
	if err := w.oneByOne(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, true); !errors.Is(err, campaign.ErrFenced) || !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, ref.ID, job.Queued, 2)
	if err := heir.Renew(t.Context(), w.db); err != nil {
		t.Errorf("the heir lost its lock: %v", err)
	}
}
