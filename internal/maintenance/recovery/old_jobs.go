package recovery

import (
	"context"
	"fmt"
	"time"
)

// moneyIsSettled is a condition on a job j: no payment or refund of its purchase is open.
// It is a subquery and no join, so that it is one look-up for each job that is found.
const moneyIsSettled = `coalesce((SELECT p.state FROM purchases p WHERE p.job_id = j.id)
	NOT IN ('pending', 'awaiting_action', 'refunding'), true)`

// expiredJobs deletes final jobs that are past their retention, the oldest first. A run
// goes on from the last batch: the rows of earlier batches are still in the index, and
// Postgres would pass over all of them again for each batch.
func (s *Sweeper) expiredJobs() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		err = s.db.QueryRow(ctx, `
			WITH old AS MATERIALIZED (
				SELECT id, expires_at FROM jobs j
				WHERE expires_at >= coalesce($2, '-infinity'::timestamptz) AND expires_at < statement_timestamp()
				  AND state IN ('succeeded', 'failed') AND `+moneyIsSettled+`
				ORDER BY expires_at LIMIT $1 FOR UPDATE OF j SKIP LOCKED
			), deleted AS (
				DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM old))
			)
			SELECT count(*), coalesce(max(expires_at), $2) FROM old`, limit, from).Scan(&deleted, &from)
		if err != nil {
			return 0, false, fmt.Errorf("recovery.expiredJobs: %w", err)
		}
		return deleted, deleted == limit, nil
	}
}

// refusedJobs deletes jobs of purchases and cancellations that were refused longer ago
// than refused jobs are kept. A list in refused_jobs is of one transaction that finalized
// jobs; a batch is as many lists as have limit jobs together. A job that is not deleted
// now is kept as long as others.
func (s *Sweeper) refusedJobs() prune {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		var lists int
		err = s.db.QueryRow(ctx, `
			WITH due AS MATERIALIZED (
				SELECT id, refused_at, jobs FROM refused_jobs
				WHERE refused_at >= coalesce($2, '-infinity'::timestamptz) AND refused_at < statement_timestamp() - $3 * interval '1 second'
				ORDER BY refused_at LIMIT $1 FOR UPDATE SKIP LOCKED
			), lists AS MATERIALIZED (
				SELECT id, refused_at, jobs
				FROM (SELECT *, sum(cardinality(jobs)) OVER (ORDER BY refused_at, id) AS jobs_so_far FROM due) AS d
				WHERE jobs_so_far - cardinality(jobs) < $1
			), done AS (
				DELETE FROM refused_jobs WHERE id = ANY(ARRAY(SELECT id FROM lists))
			), old AS MATERIALIZED (
				SELECT id FROM jobs j
				WHERE id = ANY(ARRAY(SELECT unnest(jobs) FROM lists))
				  AND state = 'failed' AND kind IN ('purchase', 'cancellation') AND `+moneyIsSettled+`
				FOR UPDATE OF j SKIP LOCKED
			), deleted AS (
				DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM old))
			)
			SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM lists), coalesce((SELECT max(refused_at) FROM lists), $2)`,
			limit, from, s.settings.Retention.Refused.Seconds()).Scan(&deleted, &lists, &from)
		if err != nil {
			return 0, false, fmt.Errorf("recovery.refusedJobs: %w", err)
		}
		return deleted, lists > 0, nil
	}
}
