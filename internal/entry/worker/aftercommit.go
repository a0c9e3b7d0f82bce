package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/subscription"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// afterCommit does the work that follows a commit, in the background: it announces jobs
// in Redis, and deletes finished messages from the outbox. This work may fail: clients that
// wait for a job also poll, and the sweep lost-jobs finds messages that were not deleted.
type afterCommit struct {
	news     *batch.Coalescer[uuid.UUID, struct{}] // jobs that say something new
	messages *batch.Coalescer[uuid.UUID, struct{}]
}

const (
	newsMost      = 512
	deleteMost    = 256
	pendingMost   = 1 << 16
	deleteLinger  = 50 * time.Millisecond // nothing waits for the deletion, so each takes many along
	deleteTimeout = 5 * time.Second       // what a shutdown may wait for it; the sweep lost-jobs deletes the rest
)

func newAfterCommit(db postgres.DB, announcements *subscription.Announcements, logger *slog.Logger) *afterCommit {
	return &afterCommit{
		news: batch.NewQuiet(batch.Options{Size: newsMost, InFlight: 1, Pending: pendingMost, Timeout: redisTimeout},
			func(ctx context.Context, ids []uuid.UUID) error {
				err := announcements.Publish(ctx, ids)
				if err != nil {
					logger.Debug("news of jobs not announced; waiters poll", "jobs", len(ids), "error", err)
				}
				return err
			}),
		messages: batch.NewQuiet(batch.Options{Size: deleteMost, Linger: deleteLinger, InFlight: 1, Pending: pendingMost, Timeout: deleteTimeout},
			func(ctx context.Context, ids []uuid.UUID) error {
				err := outbox.Delete(ctx, db, ids)
				if err != nil {
					logger.Warn("finished messages not deleted; the sweep lost-jobs will delete them", "messages", len(ids), "error", err)
				}
				return err
			}),
	}
}

func (a *afterCommit) finalized(outcomes []job.Outcome) {
	for _, o := range outcomes {
		a.changed(o.ID)
	}
}

// changed announces that a job says something new of itself.
func (a *afterCommit) changed(id uuid.UUID) {
	_ = a.news.Submit(id) // full: waiters poll
}

func (a *afterCommit) finished(message uuid.UUID) {
	_ = a.messages.Submit(message) // full: the sweep lost-jobs deletes it
}

func (a *afterCommit) close() {
	a.news.Close()
	a.messages.Close()
}
