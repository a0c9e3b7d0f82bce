package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
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
