package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/subscription"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// afterCommit does the work that follows a commit, in the background: it announces
// final jobs in Redis, gives their claims back, and deletes finished messages from the
// outbox. This work may fail: clients that wait for a job also poll, claims expire, and
// the sweep lost-jobs finds messages that were not deleted.
type afterCommit struct {
	news     *batch.Coalescer[news, struct{}]
	messages *batch.Coalescer[uuid.UUID, struct{}]
}

// news is a job that says something new.
type news struct {
	job   uuid.UUID
	final bool
}

const (
	newsMost      = 512
	deleteMost    = 256
	pendingMost   = 1 << 16
	deleteLinger  = 50 * time.Millisecond // nothing waits for the deletion, so each takes many along
	deleteTimeout = 5 * time.Second       // what a shutdown may wait for it; the sweep lost-jobs deletes the rest
)

func newAfterCommit(rdb redis.UniversalClient, db postgres.DB, claims *claims, announcements *subscription.Announcements, logger *slog.Logger) *afterCommit {
	whole := func(error) bool { return true }
	return &afterCommit{
		news: batch.New(
			batch.Options{Size: newsMost, InFlight: 1, Pending: pendingMost, Timeout: redisTimeout, Whole: whole},
			func(ctx context.Context, all []news) ([]struct{}, error) {
				_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					var ids, final []uuid.UUID
					for _, one := range all {
						ids = append(ids, one.job)
						if one.final {
							final = append(final, one.job)
						}
					}
					announcements.Publish(ctx, pipe, ids)
					return claims.Release(ctx, pipe, final)
				})
				if err != nil {
					logger.Debug("news of jobs not announced; waiters poll", "jobs", len(all), "error", err)
				}
				return make([]struct{}, len(all)), err
			}),
		messages: batch.New(
			batch.Options{Size: deleteMost, Linger: deleteLinger, InFlight: 1, Pending: pendingMost, Timeout: deleteTimeout, Whole: whole},
			func(ctx context.Context, ids []uuid.UUID) ([]struct{}, error) {
				err := outbox.Delete(ctx, db, ids)
				if err != nil {
					logger.Warn("finished messages not deleted; the sweep lost-jobs will delete them", "messages", len(ids), "error", err)
				}
				return make([]struct{}, len(ids)), err
			}),
	}
}

func (a *afterCommit) finalized(outcomes []job.Outcome) {
	for _, o := range outcomes {
		_ = a.news.Submit(news{o.ID, true}) // full: waiters poll, and claims expire
	}
}

// changed announces that a job which is not final says something new of itself.
func (a *afterCommit) changed(id uuid.UUID) {
	_ = a.news.Submit(news{job: id}) // full: waiters poll
}

func (a *afterCommit) finished(message uuid.UUID) {
	_ = a.messages.Submit(message) // full: the sweep lost-jobs deletes it
}

func (a *afterCommit) close() {
	a.news.Close()
	a.messages.Close()
}
