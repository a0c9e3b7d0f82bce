package job

import (
	"context"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// Prunes delete final jobs that are past their retention: retention.jobs and retention.purchases, as
// each job was made with; and refused ones that are older than refused. settled is a condition on a
// job j, of the topic purchase: nothing that it has to do with is still under way.
func Prunes(db postgres.Pool, refused time.Duration, settled string) []sweep.Prune {
	return []sweep.Prune{
		{Count: "jobs_deleted", Begin: func() sweep.Delete { return deleteExpired(db, settled) }},
		{Count: "refused_deleted", Begin: func() sweep.Delete { return deleteRefused(db, refused, settled) }},
	}
}

// deleteExpired deletes final jobs that are past their retention, the oldest first. A run
// goes on from the last batch: the rows of earlier batches are still in the index, and
// Postgres would pass over all of them again for each batch.
func deleteExpired(db postgres.DB, settled string) sweep.Delete {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		err = db.QueryRow(ctx, `
			WITH old AS MATERIALIZED (
				SELECT id, expires_at FROM jobs j
				WHERE expires_at >= coalesce($2, '-infinity'::timestamptz) AND expires_at < statement_timestamp()
				  AND state IN ('succeeded', 'failed') AND `+settled+`
				ORDER BY expires_at LIMIT $1 FOR UPDATE OF j SKIP LOCKED
			), deleted AS (
				DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM old))
			)
			SELECT count(*), coalesce(max(expires_at), $2) FROM old`, limit, from).Scan(&deleted, &from)
		return deleted, deleted == limit, fault.At(err, "job.deleteExpired")
	}
}

// deleteRefused deletes jobs of purchases and cancellations that were refused longer ago
// than their retention. A list in refused_jobs is of one transaction that completed
// jobs; a batch is as many lists as have limit jobs together. A job that is not deleted
// now has the retention of others.
func deleteRefused(db postgres.DB, retention time.Duration, settled string) sweep.Delete {
	var from *time.Time
	return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
		var lists int
		err = db.QueryRow(ctx, `
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
				  AND state = 'failed' AND kind IN ('purchase', 'cancellation') AND `+settled+`
				FOR UPDATE OF j SKIP LOCKED
			), deleted AS (
				DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM old))
			)
			SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM lists), coalesce((SELECT max(refused_at) FROM lists), $2)`,
			limit, from, retention.Seconds()).Scan(&deleted, &lists, &from)
		return deleted, lists > 0, fault.At(err, "job.deleteRefused")
	}
}
