package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
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

	// Of the job, when it is made final.
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
		if o.CampaignID == campaignID && (o.Problem == nil || !succeeded) {
			origin, succeeded = o.Origin, o.Problem == nil
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

// QueueComplete makes jobs final, in one statement of the transaction that has their
// effect. It takes the last locks of that transaction, in the order of ids: the sessions of package
// postgres have nested loops only, which look the rows up in the order of the subquery. The batch fails with
// ErrFinal when one of the jobs is final already: then the effect must be rolled
// back too. It fills in the jobs of the outcomes.
func QueueComplete(b *pgx.Batch, outcomes []Outcome) {
	n := len(outcomes)
	ids, states, results, problems := make([]uuid.UUID, n), make([]string, n), make([][]byte, n), make([]*Problem, n)
	for i, o := range outcomes {
		ids[i], states[i], results[i], problems[i] = o.ID, string(o.State()), o.Result, o.Problem
	}
	b.Queue(`
		UPDATE jobs j
		SET state = o.state, result = o.result, problem = o.problem,
		    attempts = greatest(j.attempts, 1), finished_at = clock_timestamp()
		FROM (SELECT * FROM unnest($1::uuid[], $2::text[], $3::json[], $4::json[]) WITH ORDINALITY AS o (id, state, result, problem, ordinal) ORDER BY id) o
		WHERE j.id = o.id AND j.state IN ('queued', 'awaiting_action')
		RETURNING o.ordinal, `+completed, ids, states, results, problems).
		Query(func(rows pgx.Rows) error {
			open := 0
			for ; rows.Next(); open++ {
				var ordinal int
				var made Outcome
				if err := made.scanCompleted(rows, &ordinal); err != nil {
					return err
				}
				o := &outcomes[ordinal-1]
				o.Origin, o.Kind, o.CampaignID, o.Attempts, o.Took = made.Origin, made.Kind, made.CampaignID, made.Attempts, made.Took
			}
			if err := rows.Err(); err != nil || open == n {
				return err
			}
			return fmt.Errorf("%w: %d of %d were open", ErrFinal, open, n)
		})
	// The sweep old-records deletes refused jobs sooner than others. A job that failed through a defect is not
	// listed. Nobody can wait for the new row.
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

// completed are the columns of a job j that an Outcome has.
const completed = `coalesce(j.request_id, ''), coalesce(j.traceparent, ''), j.kind, j.campaign_id, j.attempts, j.finished_at - j.accepted_at`

// scanCompleted reads a row of first, and completed.
func (o *Outcome) scanCompleted(row pgx.CollectableRow, first any) error {
	var campaign *uuid.UUID
	err := row.Scan(first, &o.RequestID, &o.Traceparent, &o.Kind, &campaign, &o.Attempts, &o.Took)
	o.CampaignID = postgres.ValueOf(campaign)
	return err
}

// Complete is QueueComplete for a transaction that completes one job.
func Complete(ctx context.Context, tx pgx.Tx, o *Outcome) error {
	var b pgx.Batch
	outcomes := []Outcome{*o}
	QueueComplete(&b, outcomes)
	err := tx.SendBatch(ctx, &b).Close()
	*o = outcomes[0]
	return fault.At(err, "job.Complete(%s)", o.ID)
}

// Forget makes a final job forget whom it is about.
func Forget(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	_, err := tx.Exec(ctx, `UPDATE jobs SET user_id = NULL, payload = NULL WHERE id = $1`, id)
	return fault.At(err, "job.Forget(%s)", id)
}

// QueueLock locks jobs in the order of their ids. A transaction that does more than one
// of the things below, or one of them and QueueComplete, locks all its jobs first.
func QueueLock(b *pgx.Batch, jobs []uuid.UUID) {
	b.Queue(`SELECT FROM jobs WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`, jobs)
}

// QueueBegun notes the purchases that queued jobs have begun, or wait for. From now on
// the jobs are not delivered, counted or given up: the payments of the purchases end
// them. It takes the last locks of a transaction, as QueueComplete does, and
// comes before it.
func QueueBegun(b *pgx.Batch, jobs, purchases []uuid.UUID) {
	b.Queue(`
		UPDATE jobs j SET purchase_id = b.purchase_id, attempts = greatest(j.attempts, 1)
		FROM (SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS b (id, purchase_id) ORDER BY id) b
		WHERE j.id = b.id AND j.state = 'queued' AND j.purchase_id IS NULL`, jobs, purchases).
		Exec(postgres.Exactly(len(jobs), "queued jobs"))
}

// QueueProgress sets the state of an open job, Queued or AwaitingAction, and its
// progress. It changes nothing when the job is final, which is no failure.
func QueueProgress(b *pgx.Batch, id uuid.UUID, state State, progress *Progress) {
	b.Queue(`UPDATE jobs SET state = $2, progress = $3 WHERE id = $1 AND state IN ('queued', 'awaiting_action')`, id, state, progress)
}

// QueueWaiting notes why open jobs wait, without changing the rest of their progress. Jobs
// that are final do not change.
func QueueWaiting(b *pgx.Batch, ids []uuid.UUID, waiting Blocked) {
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

// OthersQueued reports whether other jobs of a kind and a campaign are queued. It searches
// the outbox: every queued job is in a message, and there are few messages for
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

// Attrs are the attributes of a log line for the request that a job comes from; none without one.
func (o Origin) Attrs() (all []any) {
	for _, a := range o.attrs(nil) {
		all = append(all, a)
	}
	return all
}

// attrs adds them to those of a line.
func (o Origin) attrs(line []slog.Attr) []slog.Attr {
	if o.RequestID != "" {
		line = append(line, slog.String("request_id", o.RequestID))
	}
	if trace := tracing.TraceID(o.Traceparent); trace != "" {
		line = append(line, slog.String("trace_id", trace))
	}
	return line
}

// LogFinal logs the outcomes of committed jobs, one line each.
func LogFinal(ctx context.Context, logger *slog.Logger, outcomes []Outcome) {
	if !logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	var common *slog.Logger // with what the lines of jobs of one kind and campaign have in common: it is put into words once
	for i := range outcomes {
		o := &outcomes[i]
		if i == 0 || o.Kind != outcomes[i-1].Kind || o.CampaignID != outcomes[i-1].CampaignID {
			about := []any{slog.String("kind", string(o.Kind))}
			if o.CampaignID != uuid.Nil {
				about = append(about, slog.String("campaign", o.CampaignID.String()))
			}
			common = logger.With(about...)
		}
		o.log(ctx, common)
	}
}

func (o *Outcome) log(ctx context.Context, logger *slog.Logger) {
	var room [9]slog.Attr
	line := append(room[:0], slog.String("job", o.ID.String()), slog.String("outcome", o.Code()))
	if o.PurchaseID != uuid.Nil {
		line = append(line, slog.String("purchase", o.PurchaseID.String()))
	}
	if o.Positions != "" {
		line = append(line, slog.String("positions", o.Positions))
	}
	line = append(line, telemetry.Took(o.Took), slog.Int("attempts", o.Attempts))
	logger.LogAttrs(ctx, slog.LevelInfo, "job finalized", o.attrs(line)...)
}

// Code is succeeded, or why the job has failed.
func (o *Outcome) Code() string {
	if o.Problem != nil {
		return string(o.Problem.Code)
	}
	return string(Succeeded)
}
