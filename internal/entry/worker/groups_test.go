package worker

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

func TestGroupsAreSmallAndAJobOfManyDeliveriesIsAGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	waiting := func(attempts ...int) (jobs []job.Attempted) {
		for _, n := range attempts {
			jobs = append(jobs, job.Attempted{Ref: job.Ref{ID: uuid.New()}, Attempts: n})
		}
		return jobs
	}
	for _, c := range []struct {
		waiting []job.Attempted
		want    int
	}{
		{waiting(0), 1}, {waiting(0, 0, 1), 3}, {waiting(0, 1, 2, 3), 2}, {waiting(1, 2), 1}, {waiting(2), 1}, {waiting(2, 2, 5), 1},
		{waiting(slices.Repeat([]int{0}, groupMost)...), groupMost},
		{waiting(slices.Repeat([]int{1}, 3*groupMost)...), groupMost},
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
	jobs := order(t, w, id, slices.Repeat([]string{"a"}, groupMost+4)...).Jobs
	spoil(t, w, jobs[1].ID)
	deliver := func(want bool) {
		t.Helper()
		if err := w.finalizePurchases(t.Context(), jobs, true); (err == nil) != want || errors.Is(err, queue.ErrLater) {
			t.Errorf("got %v", err)
		}
	}
	states := func(of []job.Ref, state job.State, attempts int) {
		t.Helper()
		for _, ref := range of {
			expect(t, w.db, ref.ID, state, attempts)
		}
	}
	deliver(false) // the group of the spoilt one fails, the one behind it does not
	states(jobs[:groupMost], job.Queued, 2)
	states(jobs[groupMost:], job.Succeeded, 2)
	deliver(false) // each alone
	states(jobs[:1], job.Succeeded, 3)
	states(jobs[1:2], job.Queued, 3)
	states(jobs[2:groupMost], job.Succeeded, 3)
	deliver(true)
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
		if err := w.finalizePurchases(t.Context(), jobs, true); !errors.Is(err, queue.ErrLater) {
			t.Errorf("got %v", err)
		}
		expect(t, w.db, fresh.ID, job.Queued, 1)
		expect(t, w.db, redelivered.ID, job.Queued, 2)
		expect(t, w.db, passer.ID, job.Succeeded, 2)
	}
	unlock()
	if err := errors.Join(w.look(t.Context()), w.finalizePurchases(t.Context(), jobs, true)); err != nil {
		t.Error(err)
	}
	expect(t, w.db, fresh.ID, job.Succeeded, 2)
	expect(t, w.db, redelivered.ID, job.Succeeded, 3)
	fixture.Sound(t, w.db)
}

func TestAGroupWaitsForTheCampaignsThatOthersHaveLocked(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	a, b, c := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	unlockA, unlockB := lock(t, w, a), lock(t, w, b)
	jobs := slices.Concat(order(t, w, a, "a", "b").Jobs, order(t, w, b, "a").Jobs, order(t, w, c, "a").Jobs)
	made := record(w.purchases, func(wait sale.Wait) error {
		if wait.Waits() {
			expect(t, w.db, jobs[3].ID, job.Succeeded, 2) // nobody is at its campaign: it did not wait
			unlockA()
			unlockB()
		}
		return nil
	})
	if err := w.finalizePurchases(t.Context(), jobs, true); err != nil {
		t.Error(err)
	}
	if waits := waitsOf(made); !slices.Equal(waits, []sale.Wait{sale.SkipLocked, waitForCampaign, waitForCampaign}) {
		t.Errorf("the transactions waited %+v", waits)
	}
	for _, ref := range jobs {
		expect(t, w.db, ref.ID, job.Succeeded, 2)
	}
	fixture.Sound(t, w.db)
}

// While a group waits, every shard stands still. So after one wait in vain no delivery waits
// for a while, and nobody tries the jobs of the campaign.
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
	if err := w.finalizeCancellations(t.Context(), jobs, true); !errors.Is(err, queue.ErrLater) {
		t.Errorf("got %v", err)
	}
	if n := made.waits(); n != 1 {
		t.Errorf("%d transactions waited", n)
	}
	if n := w.parking.count(); n != 1 {
		t.Errorf("%d campaigns count as locked", n)
	}
	known := w.parking.locked()[0]
	if err := w.finalizeCancellations(t.Context(), jobs, true); !errors.Is(err, errParked) {
		t.Errorf("got %v", err)
	}
	if n := made.waits(); n != 1 {
		t.Errorf("%d transactions waited, with the next delivery", n)
	}
	tries := 0
	for _, one := range made.take() {
		for _, ref := range one.refs {
			if ref.CampaignID == known {
				tries++
			}
		}
	}
	if tries != 2 { // at first, and in vain
		t.Errorf("its job was tried %d times", tries)
	}
	for i, want := range []int{1, 1, 2, 2, 2} {
		expect(t, w.db, jobs[i].ID, job.Queued, want)
	}
}
