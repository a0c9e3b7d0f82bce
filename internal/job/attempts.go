package job

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// MaxDeliveries is how often a job may kill its worker: then it is completed as failed.
const MaxDeliveries = 5

// TryAlone reports whether the job was tried at least twice and is still not final.
// It may be the job that kills its workers, so it should be tried alone.
func (r Ref) TryAlone() bool { return r.Attempts >= 2 }

// FindQueued returns those of the jobs that are queued, of this kind and of the campaign that
// they name, and have not begun a purchase, by attempts.
func FindQueued(ctx context.Context, db postgres.DB, kind Kind, jobs []Ref) ([]Ref, error) {
	ids, campaigns := make([]uuid.UUID, len(jobs)), make([]uuid.UUID, len(jobs))
	for i, ref := range jobs {
		ids[i], campaigns[i] = ref.ID, ref.CampaignID
	}
	queued, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (ref Ref, err error) {
		var ordinal, attempts int
		err = row.Scan(&ordinal, &attempts)
		ref = jobs[ordinal-1]
		ref.Attempts = attempts
		return ref, err
	}, `
		SELECT i.ordinal, j.attempts FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS i (id, campaign_id, ordinal)
		CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id OFFSET 0) j
		WHERE j.state = 'queued' AND j.purchase_id IS NULL AND j.kind = $3 AND coalesce(j.campaign_id, '00000000-0000-0000-0000-000000000000') = i.campaign_id
		ORDER BY j.attempts, j.id`, ids, campaigns, kind)
	return queued, fault.At(err, "job.FindQueued")
}

// lockQueued locks those of the jobs $1 uuid[] that are queued and have not begun a
// purchase (no delivery may count or give up a job whose payment goes on), in ascending
// order, as every statement that changes several jobs does. So two such statements
// cannot deadlock.
const lockQueued = `
		WITH locked AS (SELECT id FROM jobs WHERE id = ANY($1) AND state = 'queued' AND purchase_id IS NULL ORDER BY id FOR NO KEY UPDATE)`

// Begin counts a further attempt at those of the jobs that are still queued, before
// the attempt is made. It returns the highest count, or 0 when none is queued. The first attempt
// is not counted in advance: that would double the commits of every job, and few jobs need it.
func Begin(ctx context.Context, db postgres.DB, jobs []Ref) (attempts int, err error) {
	ids, _ := counts(jobs)
	err = db.QueryRow(ctx, lockQueued+`, begun AS (
			UPDATE jobs SET attempts = greatest(attempts, 1) + 1
			WHERE id IN (SELECT id FROM locked) RETURNING attempts)
		SELECT coalesce(max(attempts), 0) FROM begun`, ids).Scan(&attempts)
	return attempts, fault.At(err, "job.Begin")
}

// Uncount takes back the count of an attempt, after a transient fault: that of the jobs
// whose count is still what Begin made it; jobs are as before it. So it may be repeated when it is
// not known whether it, or Begin, was committed.
func Uncount(ctx context.Context, db postgres.DB, jobs []Ref) error {
	ids, attempts := counts(jobs)
	_, err := db.Exec(ctx, lockQueued+`
		UPDATE jobs j SET attempts = j.attempts - 1
		FROM locked l JOIN unnest($1::uuid[], $2::int[]) AS c (id, attempts) USING (id)
		WHERE j.id = l.id AND j.attempts = greatest(c.attempts, 1) + 1`, ids, attempts)
	return fault.At(err, "job.Uncount")
}

func counts(jobs []Ref) (ids []uuid.UUID, attempts []int) {
	ids, attempts = make([]uuid.UUID, len(jobs)), make([]int, len(jobs))
	for i, a := range jobs {
		ids[i], attempts[i] = a.ID, a.Attempts
	}
	return ids, attempts
}

// GiveUp completes those of the jobs that are still queued as failed, and returns
// their outcomes.
func GiveUp(ctx context.Context, db postgres.DB, ids []uuid.UUID, problem Problem) ([]Outcome, error) {
	given, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (o Outcome, err error) {
		o.Problem = &problem
		err = o.scanCompleted(row, &o.ID)
		return o, err
	}, lockQueued+`
		UPDATE jobs j SET state = 'failed', problem = $2, finished_at = clock_timestamp()
		WHERE id IN (SELECT id FROM locked) RETURNING j.id, `+completed, ids, problem)
	return given, fault.At(err, "job.GiveUp")
}
