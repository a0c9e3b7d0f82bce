package job

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// QueueLock locks jobs in the order of their ids. A transaction that does more than one
// of the things below, or one of them and QueueFinalize, locks all its jobs first.
func QueueLock(b *pgx.Batch, jobs []uuid.UUID) {
	b.Queue(`SELECT FROM jobs WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`, jobs)
}

// QueueBegun notes the purchases that queued jobs have begun, or wait for. From now on
// the jobs are not delivered, counted or given up: the payments of the purchases lead
// them to their ends. It takes the last locks of a transaction, as QueueFinalize does, and
// comes before it.
func QueueBegun(b *pgx.Batch, jobs, purchases []uuid.UUID) {
	QueueLock(b, jobs) // the UPDATE alone has no order
	b.Queue(`
		UPDATE jobs j SET purchase_id = b.purchase_id, attempts = greatest(j.attempts, 1)
		FROM unnest($1::uuid[], $2::uuid[]) AS b (id, purchase_id)
		WHERE j.id = b.id AND j.state = 'queued' AND j.purchase_id IS NULL`, jobs, purchases).
		Exec(postgres.Exactly(len(jobs), "queued jobs"))
}

// QueueProgress sets the state of an open job, Queued or AwaitingAction, and what it says
// of itself. It changes nothing when the job is final, which is no failure.
func QueueProgress(b *pgx.Batch, id uuid.UUID, state State, progress *Progress) {
	b.Queue(`UPDATE jobs SET state = $2, progress = $3 WHERE id = $1 AND state IN ('queued', 'awaiting_action')`, id, state, progress)
}

// QueueWaiting notes why open jobs wait, beside what else they say of themselves. Jobs
// that are final stay as they are.
func QueueWaiting(b *pgx.Batch, ids []uuid.UUID, waiting Waiting) {
	QueueLock(b, ids)
	b.Queue(`
		UPDATE jobs SET progress = (coalesce(progress::jsonb, '{}') || $2::jsonb)::json
		WHERE id = ANY($1) AND state IN ('queued', 'awaiting_action')`, ids, &Progress{Waiting: &waiting})
}

// QueueNotAwaiting notes that open jobs do not wait for their buyers any more.
func QueueNotAwaiting(b *pgx.Batch, jobs []uuid.UUID) {
	QueueLock(b, jobs)
	b.Queue(`UPDATE jobs SET state = 'queued', progress = NULL WHERE id = ANY($1) AND state = 'awaiting_action'`, jobs)
}

// QueueAdvance notes how far a queued job has come that does its work in many
// transactions. A job that advances is not what kills its workers, so its attempts are
// counted anew. The batch fails with [ErrFinal] when the job is not queued.
func QueueAdvance(b *pgx.Batch, id uuid.UUID, progress *Progress) {
	b.Queue(`UPDATE jobs SET progress = $2, attempts = least(attempts, 1) WHERE id = $1 AND state = 'queued'`, id, progress).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != 1 {
				return fmt.Errorf("%w: job %s", ErrFinal, id)
			}
			return nil
		})
}

// OthersQueued reports whether other jobs of a kind and a campaign are queued. It looks
// for them in the outbox: every queued job is in a message, and there are few messages for
// rare kinds.
func OthersQueued(ctx context.Context, db postgres.DB, kind Kind, campaignID, except uuid.UUID) (queued bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT EXISTS (
			SELECT FROM outbox_messages m CROSS JOIN LATERAL unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT id, campaign_id, state FROM jobs WHERE id = i.id) j
			WHERE m.kind = $1 AND j.state = 'queued' AND j.campaign_id = $2 AND j.id <> $3)`, kind, campaignID, except).Scan(&queued)
	return queued, fault.At(err, "job.OthersQueued")
}

// FindFinal returns those of the jobs that are final.
func FindFinal(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]uuid.UUID, error) {
	final, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT j.id FROM unnest($1::uuid[]) AS i (id)
		CROSS JOIN LATERAL (SELECT id, state FROM jobs WHERE id = i.id) j WHERE j.state IN ('succeeded', 'failed')`, ids)
	return final, fault.At(err, "job.FindFinal")
}
