package job

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// QueueLock locks jobs in the order of their ids. A transaction that does more than one
// of the things below, or one of them and QueueSettle, locks all its jobs first.
func QueueLock(b *pgx.Batch, jobs []uuid.UUID) {
	b.Queue(`SELECT FROM jobs WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`, jobs)
}

// QueueBegun notes the purchases that queued jobs have begun, or wait for. From now on
// the jobs are not delivered, counted or given up: the payments of the purchases lead
// them to their ends. It takes the last locks of a transaction, as QueueSettle does, and
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
