package worker

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/queue"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

func TestAJobOfManyDeliveriesIsAGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	waiting := func(attempts ...int) (jobs []job.Ref) {
		for _, n := range attempts {
			jobs = append(jobs, job.Ref{ID: uuid.New(), Attempts: n})
		}
		return jobs
	}
	for _, c := range []struct {
		waiting []job.Ref
		want    int
	}{
		{waiting(0), 1}, {waiting(0, 0, 1), 3}, {waiting(0, 1, 2, 3), 2}, {waiting(1, 2), 1}, {waiting(2), 1}, {waiting(2, 2, 5), 1},
		{waiting(slices.Repeat([]int{1}, 200)...), 200},
	} {
		if n := groupSize(c.waiting); n != c.want {
			t.Errorf("of %v %d are tried next, want %d", c.waiting, n, c.want)
		}
	}
}

func TestAJobThatFailsAgainLeavesTheOthersTheirTurn(t *testing.T) {
	t.Parallel()
	w := newWorker(t, maxDeliveries(3))
	id := fixture.Campaign(t, w.db, fixture.Draft(8))
	jobs := order(t, w, id, "a", "b", "c", "d").Jobs
	spoil(t, w, jobs[1].ID)
	for delivery, want := range []map[int]job.State{
		{0: job.Queued, 1: job.Queued, 2: job.Queued, 3: job.Queued},          // together
		{0: job.Succeeded, 1: job.Queued, 2: job.Succeeded, 3: job.Succeeded}, // one by one
	} {
		if err := w.purchases.jobs(t.Context(), jobs, true); err == nil || errors.Is(err, queue.ErrSnoozed) {
			t.Errorf("got %v", err)
		}
		for i, state := range want {
			expect(t, w.db, jobs[i].ID, state, delivery+2)
		}
	}
	if err := w.purchases.jobs(t.Context(), jobs, true); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, w.db, jobs[1].ID); j.State != job.Failed || j.Problem.Code != fault.InternalError {
		t.Errorf("after its last delivery it is %s, %+v", j.State, j.Problem)
	}
	fixture.Sound(t, w.db)
}

func TestALockedCampaignIsNotCountedAgainstJobsThatAreTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, locked)
	fresh, redelivered := order(t, w, locked, "a").Jobs[0], order(t, w, locked, "b").Jobs[0]
	passer := order(t, w, free, "a").Jobs[0]
	deliveredBefore(t, w, 2, redelivered.ID)
	jobs := []job.Ref{redelivered, fresh, passer}
	for range 4 {
		if err := w.purchases.jobs(t.Context(), jobs, true); !errors.Is(err, errLocked) {
			t.Errorf("got %v", err)
		}
		expect(t, w.db, fresh.ID, job.Queued, 1)
		expect(t, w.db, redelivered.ID, job.Queued, 2)
		expect(t, w.db, passer.ID, job.Succeeded, 2)
	}
	unlock()
	if err := w.purchases.jobs(t.Context(), jobs, true); err != nil {
		t.Error(err)
	}
	expect(t, w.db, fresh.ID, job.Succeeded, 2)
	expect(t, w.db, redelivered.ID, job.Succeeded, 3)
	fixture.Sound(t, w.db)
}

// While a group waits, every shard stands still. So it waits for one campaign only, and after one wait in
// vain none waits for a while.
func TestRedeliveredJobsOfLockedCampaignsWaitInVainOnce(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	var jobs []job.Ref
	for range 5 {
		id := fixture.Campaign(t, w.db, fixture.Draft(5))
		jobs = append(jobs, takeBack(t, w, id, 1)...)
		lock(t, w, id)
	}
	for _, ref := range jobs[2:] {
		deliveredBefore(t, w, 2, ref.ID) // each is a group of its own
	}
	made := record(w.cancellations, nil)
	for range 2 {
		if err := w.cancellations.jobs(t.Context(), jobs, true); !errors.Is(err, errLocked) {
			t.Errorf("got %v", err)
		}
	}
	if n := made.waits(); n != 1 {
		t.Errorf("%d of %d transactions waited", n, made.count())
	}
	for i, want := range []int{1, 1, 2, 2, 2} {
		expect(t, w.db, jobs[i].ID, job.Queued, want)
	}
}

func TestARedeliveredJobWaitsForItsCampaign(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	id := fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, id)
	jobs := order(t, w, id, "a", "b").Jobs
	record(w.purchases, func(wait sale.LockWait) error {
		if wait != sale.SkipLocked {
			unlock()
		}
		return nil
	})
	if err := w.purchases.jobs(t.Context(), jobs, true); err != nil {
		t.Error(err)
	}
	for _, ref := range jobs {
		expect(t, w.db, ref.ID, job.Succeeded, 2)
	}
}
