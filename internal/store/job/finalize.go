package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
)

// ErrFinal means that a job was final already, by another delivery.
var ErrFinal = errors.New("job: final already")

// Outcome is how a job ends: with a result, or with a problem.
type Outcome struct {
	ID      uuid.UUID
	Result  json.RawMessage
	Problem *Problem
}

// Refused returns the outcome of a job that ends with a refusal.
func Refused(id uuid.UUID, refusal error) Outcome {
	problem := ProblemOf(refusal)
	return Outcome{ID: id, Problem: &problem}
}

// State returns the final state that the outcome means.
func (o Outcome) State() State {
	if o.Problem != nil {
		return Failed
	}
	return Succeeded
}

// QueueFinalize makes jobs final, in one statement of the transaction that has their
// effect. It takes the last locks of that transaction. The batch fails with
// ErrFinal when one of the jobs is final already: then the effect must be rolled
// back too.
func QueueFinalize(b *pgx.Batch, outcomes []Outcome) {
	n := len(outcomes)
	ids, states, results, problems := make([]uuid.UUID, n), make([]string, n), make([][]byte, n), make([]*Problem, n)
	for i, o := range outcomes {
		ids[i], states[i], results[i], problems[i] = o.ID, string(o.State()), o.Result, o.Problem
	}
	QueueLock(b, ids) // the UPDATE alone has no order
	b.Queue(`
		UPDATE jobs j
		SET state = o.state, result = o.result, problem = o.problem,
		    attempts = greatest(j.attempts, 1), finished_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::text[], $3::json[], $4::json[]) AS o (id, state, result, problem)
		WHERE j.id = o.id AND j.state IN ('queued', 'awaiting_action')`, ids, states, results, problems).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != int64(n) {
				return fmt.Errorf("%w: %d of %d were open", ErrFinal, tag.RowsAffected(), n)
			}
			return nil
		})
	queueRefused(b, outcomes)
}

// queueRefused lists the refused jobs among outcomes for the sweep old-records, which
// deletes them sooner than others. A job that failed through a defect is not listed.
// Nobody can wait for the new row.
func queueRefused(b *pgx.Batch, outcomes []Outcome) {
	var refused []uuid.UUID
	for _, o := range outcomes {
		if o.Problem != nil && o.Problem.Code.Kind() != fault.KindInternal {
			refused = append(refused, o.ID)
		}
	}
	if len(refused) > 0 {
		b.Queue(`INSERT INTO refused_jobs (jobs) VALUES ($1)`, refused)
	}
}

// Finalize is QueueFinalize for a transaction that finalizes one job.
func Finalize(ctx context.Context, tx pgx.Tx, o Outcome) error {
	var b pgx.Batch
	QueueFinalize(&b, []Outcome{o})
	return fault.At(tx.SendBatch(ctx, &b).Close(), "job.Finalize(%s)", o.ID)
}
