package job

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Attempted is a job that was delivered before, with the number of attempts.
type Attempted struct {
	Ref
	Attempts int
}

// TryAlone reports whether the job was tried at least twice and is still not final.
// It may be the job that kills its workers, so it should be tried alone.
func (a Attempted) TryAlone() bool { return a.Attempts >= 2 }

// FindQueued returns those of the jobs that are queued, by attempts.
func FindQueued(ctx context.Context, db postgres.DB, jobs []Ref) ([]Attempted, error) {
	ids := make([]uuid.UUID, len(jobs))
	refs := make(map[uuid.UUID]Ref, len(jobs))
	for i, ref := range jobs {
		ids[i], refs[ref.ID] = ref.ID, ref
	}
	queued, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (a Attempted, err error) {
		err = row.Scan(&a.ID, &a.Attempts)
		a.Ref = refs[a.ID]
		return a, err
	}, `SELECT id, attempts FROM jobs WHERE id = ANY($1) AND state = 'queued' ORDER BY attempts, id`, ids)
	if err != nil {
		return nil, fmt.Errorf("job.FindQueued: %w", err)
	}
	return queued, nil
}

// lockQueued locks those of the jobs $1 uuid[] that are queued, in ascending
// order, as every statement that changes several jobs does. So two such statements
// cannot deadlock.
const lockQueued = `
		WITH locked AS (SELECT id FROM jobs WHERE id = ANY($1) AND state = 'queued' ORDER BY id FOR NO KEY UPDATE)`

// Begin counts a further attempt at those of the jobs that are still queued, before
// the attempt is made. It returns the highest count, or 0 when none is queued. The
// first attempt is not counted in advance: that would double the commits of every
// job, and few jobs need it.
func Begin(ctx context.Context, db postgres.DB, ids []uuid.UUID) (attempts int, err error) {
	err = db.QueryRow(ctx, lockQueued+`, begun AS (
			UPDATE jobs SET attempts = greatest(attempts, 1) + 1
			WHERE id IN (SELECT id FROM locked) RETURNING attempts)
		SELECT coalesce(max(attempts), 0) FROM begun`, ids).Scan(&attempts)
	if err != nil {
		return 0, fmt.Errorf("job.Begin: %w", err)
	}
	return attempts, nil
}

// Uncount takes back one count of Begin, after a transient fault.
func Uncount(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	_, err := db.Exec(ctx, lockQueued+`UPDATE jobs SET attempts = attempts - 1 WHERE id IN (SELECT id FROM locked) AND attempts > 1`, ids)
	if err != nil {
		return fmt.Errorf("job.Uncount: %w", err)
	}
	return nil
}

// GiveUp settles those of the jobs that are still queued as failed, and returns
// their ids.
func GiveUp(ctx context.Context, db postgres.DB, ids []uuid.UUID, problem Problem) ([]uuid.UUID, error) {
	given, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], lockQueued+`
		UPDATE jobs SET state = 'failed', problem = $2, finished_at = clock_timestamp()
		WHERE id IN (SELECT id FROM locked) RETURNING id`, ids, problem)
	if err != nil {
		return nil, fmt.Errorf("job.GiveUp: %w", err)
	}
	return given, nil
}
