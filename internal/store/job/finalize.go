package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
)

// ErrFinal means that a job was final already, by another delivery.
var ErrFinal = errors.New("job: final already")

// Outcome is how a job ends: with a result, or with a problem.
type Outcome struct {
	ID         uuid.UUID
	Result     json.RawMessage
	Problem    *Problem
	PurchaseID uuid.UUID // that it has made, ended or changed; zero: none
	Positions  string    // that it has sold, for the log: layer/column, with spaces between them
	Job        Finalized // filled in when the job is made final
}

// Finalized is what the log says of a job that has become final.
type Finalized struct {
	Origin
	Kind       Kind
	CampaignID uuid.UUID
	Attempts   int
	Took       time.Duration // from its acceptance on, by the database's clock
}

// OriginIn returns where a job comes from that outcomes of a campaign have made necessary: from
// the request of the last success, or of the last failure where nothing has succeeded.
func OriginIn(outcomes []Outcome, campaignID uuid.UUID) (origin Origin) {
	succeeded := false
	for _, o := range outcomes {
		if o.Job.CampaignID == campaignID && (o.Problem == nil || !succeeded) {
			origin, succeeded = o.Job.Origin, o.Problem == nil
		}
	}
	return origin
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
// back too. It fills in the jobs of the outcomes.
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
		FROM unnest($1::uuid[], $2::text[], $3::json[], $4::json[]) WITH ORDINALITY AS o (id, state, result, problem, place)
		WHERE j.id = o.id AND j.state IN ('queued', 'awaiting_action')
		RETURNING o.place, `+finalized, ids, states, results, problems).
		Query(func(rows pgx.Rows) error {
			open := 0
			for ; rows.Next(); open++ {
				var place int
				var f Finalized
				if err := f.scan(rows, &place); err != nil {
					return err
				}
				outcomes[place-1].Job = f
			}
			if err := rows.Err(); err != nil || open == n {
				return err
			}
			return fmt.Errorf("%w: %d of %d were open", ErrFinal, open, n)
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

// finalized are the columns of a job j that Finalized has.
const finalized = `coalesce(j.request_id, ''), coalesce(j.traceparent, ''), j.kind, j.campaign_id, j.attempts, j.finished_at - j.accepted_at`

// scan reads a row of what is more, and finalized.
func (f *Finalized) scan(row pgx.CollectableRow, more any) error {
	var campaign *uuid.UUID
	err := row.Scan(more, &f.RequestID, &f.Traceparent, &f.Kind, &campaign, &f.Attempts, &f.Took)
	if campaign != nil {
		f.CampaignID = *campaign
	}
	return err
}

// Finalize is QueueFinalize for a transaction that finalizes one job.
func Finalize(ctx context.Context, tx pgx.Tx, o *Outcome) error {
	var b pgx.Batch
	outcomes := []Outcome{*o}
	QueueFinalize(&b, outcomes)
	err := tx.SendBatch(ctx, &b).Close()
	o.Job = outcomes[0].Job
	return fault.At(err, "job.Finalize(%s)", o.ID)
}
