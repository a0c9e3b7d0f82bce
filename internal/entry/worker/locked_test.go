package worker

import (
	"errors"
	"testing"

	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// A campaign that stays locked must not keep all slots of its kind: other tasks get no
// further than the queue then.
func TestTasksOfALockedCampaignLeaveHalfOfTheSlotsToOthers(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient, func(s *config.Settings) { s.Worker.Concurrency = 4 })
	lockedID, free := fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	finalizers := map[*finalizer]func(t *testing.T) []job.Ref{
		w.purchases:     func(t *testing.T) []job.Ref { return order(t, w, lockedID, "a").Jobs },
		w.cancellations: func(t *testing.T) []job.Ref { return takeBack(t, w, lockedID, 1) },
	}
	tasks := make(map[*finalizer][][]job.Ref)
	for s, ask := range finalizers {
		for range 4 {
			tasks[s] = append(tasks[s], ask(t))
		}
	}
	unlock := lock(t, w, lockedID)
	for s, all := range tasks {
		made := record(s, nil)
		answers := make(chan error, len(all))
		for _, jobs := range all[:3] {
			go func() { answers <- w.finalizeInBatches(t.Context(), s, jobs, false) }()
		}
		if err := <-answers; !errors.Is(err, queue.ErrLater) { // one of three; two stay
			t.Errorf("%s: the third task: %v", s.kind, err)
		}
		if err := w.finalizeInBatches(t.Context(), s, all[3], false); !errors.Is(err, queue.ErrLater) {
			t.Errorf("%s: a task after that: %v", s.kind, err)
		}
		for _, one := range made.take() {
			for _, ref := range one.refs {
				if ref == all[3][0] {
					t.Errorf("%s: it was tried", s.kind)
				}
			}
		}
		if err := w.finalizePurchases(t.Context(), order(t, w, free, "b").Jobs, false); err != nil {
			t.Errorf("%s: a purchase elsewhere: %v", s.kind, err)
		}
		defer func() {
			for range 2 {
				if err := <-answers; err != nil {
					t.Errorf("%s: a task that stayed: %v", s.kind, err)
				}
			}
		}()
	}
	unlock()
}
