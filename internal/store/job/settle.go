package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/platform/postgres"
)

// ErrSettled means that a job was settled by somebody else first.
var ErrSettled = errors.New("job: settled already")

// Outcome is how a job ends: with a result, or with a problem.
type Outcome struct {
	ID      uuid.UUID
	Result  json.RawMessage
	Problem *Problem
}

// State returns the final state that the outcome means.
func (o Outcome) State() State {
	if o.Problem != nil {
		return Failed
	}
	return Succeeded
}

// QueueSettle makes jobs final, in one statement of the transaction that holds
// their effect. The caller checks that it touches as many rows as there are
// outcomes: a job that somebody else has settled in the meantime is not settled
// again, and then the effect must not stay either.
func QueueSettle(b *pgx.Batch, outcomes []Outcome) *pgx.QueuedQuery {
	outcomes = slices.SortedFunc(slices.Values(outcomes), func(x, y Outcome) int { return bytes.Compare(x.ID[:], y.ID[:]) }) // the order of locks
	n := len(outcomes)
	ids, states, results, problems := make([]uuid.UUID, n), make([]string, n), make([][]byte, n), make([]*Problem, n)
	for i, o := range outcomes {
		ids[i], states[i], results[i], problems[i] = o.ID, string(o.State()), o.Result, o.Problem
	}
	return b.Queue(`
		UPDATE jobs j
		SET state = o.state, result = o.result, problem = o.problem,
		    attempts = greatest(j.attempts, 1), finished_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::text[], $3::json[], $4::json[]) AS o (id, state, result, problem)
		WHERE j.id = o.id AND j.state IN ('queued', 'awaiting_action')`, ids, states, results, problems)
}

// Settle is QueueSettle for a transaction that settles one job.
func Settle(ctx context.Context, tx pgx.Tx, o Outcome) error {
	var b pgx.Batch
	settled := int64(0)
	QueueSettle(&b, []Outcome{o}).Exec(func(tag pgconn.CommandTag) error {
		settled = tag.RowsAffected()
		return nil
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("job.Settle(%s): %w", o.ID, err)
	}
	if settled != 1 {
		return fmt.Errorf("job.Settle(%s): %w", o.ID, ErrSettled)
	}
	return nil
}

// lockQueued locks those of the jobs $1 uuid[] that are queued, in ascending
// order, as every statement that changes several jobs does: nobody waits in a circle.
const lockQueued = `
		WITH locked AS (SELECT id FROM jobs WHERE id = ANY($1) AND state = 'queued' ORDER BY id FOR NO KEY UPDATE)`

// GiveUp settles as failed those of the jobs that are still queued, outside of
// any effect, and returns them.
func GiveUp(ctx context.Context, db postgres.DB, ids []uuid.UUID, problem Problem) ([]uuid.UUID, error) {
	rows, err := db.Query(ctx, lockQueued+`
		UPDATE jobs SET state = 'failed', problem = $2, finished_at = clock_timestamp()
		WHERE id IN (SELECT id FROM locked) RETURNING id`, ids, problem)
	if err != nil {
		return nil, fmt.Errorf("job.GiveUp: %w", err)
	}
	given, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("job.GiveUp: %w", err)
	}
	return given, nil
}

// Attempted is a job that was delivered before, and how often it was tried.
type Attempted struct {
	Ref
	Attempts int
}

// Suspect tells whether the job was tried again already, and is still not final:
// it may be what stops its workers.
func (a Attempted) Suspect() bool { return a.Attempts >= 2 }

// Waiting returns those of the jobs that are queued, by attempts.
func Waiting(ctx context.Context, db postgres.DB, jobs []Ref) ([]Attempted, error) {
	ids := make([]uuid.UUID, len(jobs))
	refs := make(map[uuid.UUID]Ref, len(jobs))
	for i, ref := range jobs {
		ids[i], refs[ref.ID] = ref.ID, ref
	}
	rows, err := db.Query(ctx, `SELECT id, attempts FROM jobs WHERE id = ANY($1) AND state = 'queued' ORDER BY attempts, id`, ids)
	if err != nil {
		return nil, fmt.Errorf("job.Waiting: %w", err)
	}
	waiting, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Attempted, err error) {
		err = row.Scan(&a.ID, &a.Attempts)
		a.Ref = refs[a.ID]
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("job.Waiting: %w", err)
	}
	return waiting, nil
}

// Begin counts a further delivery of those of the jobs that are still queued,
// before it is tried, and returns the highest count, 0 when none is queued. The
// first delivery is not counted in advance: that would double the commits of
// every job for the sake of few.
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

// Uncount takes back what Begin counted, after a fault of the surroundings.
func Uncount(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	_, err := db.Exec(ctx, lockQueued+`UPDATE jobs SET attempts = attempts - 1 WHERE id IN (SELECT id FROM locked) AND attempts > 1`, ids)
	if err != nil {
		return fmt.Errorf("job.Uncount: %w", err)
	}
	return nil
}
