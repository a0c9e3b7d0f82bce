package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/testkit/servers"
)

// lockJob locks a job: nobody can count its attempts until it is unlocked.
func lockJob(t *testing.T, w *Worker, id uuid.UUID) (unlock func()) {
	t.Helper()
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(unlock)
	servers.Exec(t, tx, `SELECT FROM jobs WHERE id = $1 FOR UPDATE`, id)
	return unlock
}

// A fault that ends an attempt may go on, so that the attempt cannot be uncounted. The
// handler keeps the task until it can, and does not hold back others.
func TestAnAttemptIsUncountedThoughItsFaultGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	log := &servers.Journal{}
	w.logger = slog.New(slog.NewTextHandler(log, nil))
	jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	deliveredBefore(t, w, 2, jobs[0].ID)
	unlocked := make(chan func(), 1)
	tried := make(chan error, 1)
	go func() {
		tried <- w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error {
			unlocked <- lockJob(t, w, jobs[0].ID)
			return context.DeadlineExceeded
		})
	}()
	unlock := <-unlocked
	servers.Eventually(t, "it cannot be uncounted", func() bool { return strings.Contains(log.String(), "not uncounted yet") })
	if heldBack(w) {
		t.Error("others are held back meanwhile")
	}
	expect(t, w.db, jobs[0].ID, job.Queued, 3)
	select {
	case err := <-tried:
		t.Fatalf("the task was given back: %v", err)
	default:
	}
	unlock()
	if err := <-tried; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, jobs[0].ID, job.Queued, 2)
}

// A fault may last longer than a task may take, or than the worker. What is uncounts is
// paid before the next attempt, or at the end.
func TestWhatCouldNotBeUncountedIsUncountedBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	first, second, third := attempted(order(t, w, uuid.New(), "a").Jobs, 4), attempted(order(t, w, uuid.New(), "a").Jobs, 2), attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	deliveredBefore(t, w, 4, first[0].ID)
	deliveredBefore(t, w, 2, second[0].ID, third[0].ID)
	fail := func(jobs []job.Attempted) (unlock func()) {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		err := w.exclusively(ctx, job.KindPurchase, jobs, func(context.Context) error {
			unlock = lockJob(t, w, jobs[0].ID)
			end() // as at the end of worker.task_timeout
			return context.Canceled
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		expect(t, w.db, jobs[0].ID, job.Queued, jobs[0].Attempts+1)
		return unlock
	}
	unlock := fail(first)
	err := w.exclusively(t.Context(), job.KindPurchase, second, func(context.Context) error { t.Error("it was tried"); return nil })
	if !errors.Is(err, queue.ErrLater) {
		t.Errorf("while an attempt is uncounts: %v", err)
	}
	expect(t, w.db, second[0].ID, job.Queued, 2)
	unlock()
	tried := 0
	err = w.exclusively(t.Context(), job.KindPurchase, second, func(context.Context) error {
		tried++
		expect(t, w.db, first[0].ID, job.Queued, 4)
		expect(t, w.db, second[0].ID, job.Queued, 3)
		return nil
	})
	if err != nil || tried != 1 {
		t.Errorf("%v, tried %d times", err, tried)
	}
	fail(third)()
	w.uncounts.close(t.Context(), w.db, w.logger)
	expect(t, w.db, third[0].ID, job.Queued, 2)
	w.uncounts.close(t.Context(), w.db, w.logger)
	expect(t, w.db, third[0].ID, job.Queued, 2)
}
