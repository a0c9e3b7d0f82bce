package worker

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
)

func maxDeliveries(n int) func(s *config.Settings) {
	return func(s *config.Settings) { s.Worker.MaxDeliveries = n }
}

// heldBack tells whether a batch would have to wait now.
func heldBack(w *Worker) bool {
	if w.exclusive.TryRLock() {
		w.exclusive.RUnlock()
		return false
	}
	return true
}

// attempted returns jobs as they are after n attempts.
func attempted(refs []job.Ref, n int) []job.Ref {
	jobs := make([]job.Ref, len(refs))
	for i, ref := range refs {
		jobs[i] = ref
		jobs[i].Attempts = n
	}
	return jobs
}

func TestAJobThatIsTriedAloneIsCountedFirstAndAllElseIsHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	id := jobs[0].ID
	deliveredBefore(t, w, 2, id)
	tried := 0
	err := w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error {
		tried++
		expect(t, w.db, id, job.Queued, 3) // committed: another connection sees it
		if !heldBack(w) {
			t.Error("a batch could run at the same time")
		}
		return nil
	})
	if err != nil || tried != 1 || heldBack(w) {
		t.Errorf("%v, tried %d times, still held back: %v", err, tried, heldBack(w))
	}
}

func TestAnAttemptCountsUnlessTheFaultWasTransient(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for name, c := range map[string]struct {
		err      error
		attempts int
	}{
		"it went well":             {nil, 3},
		"a fault of its own":       {errors.New("a fault"), 3},
		"a refusal":                {fault.New(fault.SoldOut, "sold out"), 3},
		"a rule of the database":   {&pgconn.PgError{Code: "23514"}, 3},
		"not now":                  {queue.Snooze(errors.New("busy")), 2},
		"a deadlock":               {&pgconn.PgError{Code: "40P01"}, 2},
		"a standby":                {&pgconn.PgError{Code: "25006"}, 2},
		"a lost connection":        {&pgconn.ConnectError{}, 2},
		"a deadline":               {context.DeadlineExceeded, 2},
		"the worker shuts down":    {context.Canceled, 2},
		"too many callers waiting": {batch.ErrFull, 2},
	} {
		jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
		id := jobs[0].ID
		deliveredBefore(t, w, 2, id)
		err := w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error { return c.err })
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if j := fixture.Job(t, w.db, id); j.Attempts != c.attempts || j.State != job.Queued {
			t.Errorf("%s: %s after %d attempts", name, j.State, j.Attempts)
		}
		if heldBack(w) {
			t.Fatalf("%s: everything is still held back", name)
		}
	}
}

func TestAnAttemptThatPanicsCountsAndLetsTheOthersGoOn(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	id := jobs[0].ID
	deliveredBefore(t, w, 2, id)
	func() {
		defer func() { _ = recover() }()
		_ = w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error { panic("a poisonous job") })
		t.Error("the panic was swallowed")
	}()
	expect(t, w.db, id, job.Queued, 3)
	if heldBack(w) {
		t.Error("everything is still held back")
	}
}

func TestAJobIsGivenUpAfterItsLastDelivery(t *testing.T) {
	t.Parallel()
	w := newWorker(t, maxDeliveries(4))
	for before, tries := range map[int]int{2: 1, 3: 1, 4: 0, 9: 0} {
		jobs := attempted(order(t, w, uuid.New(), "a").Jobs, before)
		id := jobs[0].ID
		deliveredBefore(t, w, before, id)
		tried := 0
		err := w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error { tried++; return nil })
		if err != nil || tried != tries || heldBack(w) {
			t.Errorf("after %d deliveries: %v, tried %d times", before, err, tried)
		}
		j := fixture.Job(t, w.db, id)
		if tries == 1 && j.State != job.Queued {
			t.Errorf("after %d deliveries it is %s", before, j.State)
		}
		if tries == 0 && (j.State != job.Failed || j.Problem == nil || j.Problem.Code != fault.InternalError || j.FinishedAt == nil) {
			t.Errorf("after %d deliveries it is %s, %+v", before, j.State, j.Problem)
		}
	}
}

func TestAJobThatIsFinalByNowIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorker(t, maxDeliveries(2))
	jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	id := jobs[0].ID
	deliveredBefore(t, w, 9, id)
	if given, err := job.GiveUp(t.Context(), w.db, []uuid.UUID{id}, job.Problem{Code: fault.SoldOut}); err != nil || len(given) != 1 {
		t.Fatal(given, err)
	}
	if err := w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error { t.Error("it was tried"); return nil }); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, w.db, id); j.Attempts != 9 || j.Problem.Code != fault.SoldOut {
		t.Errorf("it is %+v", j)
	}
}
