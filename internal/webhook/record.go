package webhook

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
	"triprize/internal/webhook/sender"
)

// Leases is the table of endpoints that something is due for. An endpoint that fails, or
// answers slowly, has tasks of a kind of their own.
var Leases = lease.Table{Name: "webhook_endpoints", As: "p", Key: "id", Kind: `CASE WHEN p.slow THEN '` + KindSlow + `' ELSE '` + Kind + `' END`, Open: open,
	Due: open + ` AND (p.verified_at IS NULL OR EXISTS (SELECT FROM webhook_deliveries d WHERE d.endpoint_id = p.id AND d.state = 'pending' AND d.next_at <= clock_timestamp()))`}

// The kinds of tasks.
const (
	Kind     = string(job.KindWebhook)
	KindSlow = string(job.KindWebhookSlow)

	ReenqueueAfter = 10 * time.Second // then an endpoint whose task was lost gets another one. More tasks than one do no harm.
)

// DueNotice is the notice with which a commit names endpoints that something may be due for. Its
// detail are their ids, with commas between them.
const DueNotice = "webhook endpoints are due"

// open is the condition of endpoints that may be sent to: events, or a challenge.
const open = mayChallenge + ` AND p.disabled_at IS NULL AND p.deleted_at IS NULL AND (p.paused_until IS NULL OR p.paused_until <= clock_timestamp())`

// Item returns the endpoint as a leased item.
func (e Endpoint) Item() lease.Item {
	kind := Kind
	if e.Slow {
		kind = KindSlow
	}
	return lease.Item{ID: e.ID, Version: e.Version, Kind: kind}
}

// Claim leases an endpoint to a worker, see [lease.Claim], unless nothing may be sent to it now.
func Claim(ctx context.Context, db postgres.DB, item lease.Item, until time.Duration) (e Endpoint, ok bool, err error) {
	return lease.Claim(ctx, db, Leases, item, until, `, challenged_at`, `, CASE WHEN p.verified_at IS NULL THEN now.at ELSE p.challenged_at END`, columns, scan)
}

// DueEvent is an event that is due for an endpoint, since when, and how often it was tried.
type DueEvent struct {
	Event
	Attempts int
	Due      time.Time

	Traceparent string // of the job that has done it, of its client; empty: none
}

// DueEvents returns up to limit events that are due for an endpoint, the longest due first.
// It locks nothing: its caller has the lease.
func DueEvents(ctx context.Context, db postgres.DB, endpointID uuid.UUID, limit int) ([]DueEvent, error) {
	due, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[DueEvent], `
		SELECT `+eventColumns+`, d.attempts, d.next_at, coalesce(j.traceparent, '')
		FROM (SELECT * FROM webhook_deliveries
		      WHERE endpoint_id = $1 AND state = 'pending' AND next_at <= clock_timestamp() ORDER BY next_at, event_id LIMIT $2) d
		JOIN webhook_events e ON e.id = d.event_id
		LEFT JOIN jobs j ON j.id = e.subject ORDER BY d.next_at, d.event_id`, endpointID, limit)
	return due, fault.At(err, "webhook.DueEvents(%s)", endpointID)
}

// AttemptResult is the result of an attempt, and when its delivery is tried again.
type AttemptResult struct {
	Attempt
	Due   time.Time      // since when the delivery was: a replay or an attempt of another worker changes it
	Retry *time.Duration // nil: it has arrived, or was tried for the last time

	answer sender.Answer
}

// Round is the result of a batch for one endpoint, and what the endpoint does next.
type Round struct {
	Sent    []AttemptResult
	Arrived bool          // one of them at least
	Failed  bool          // all of them, and not by the fault of one event
	Slow    bool          // it makes others wait
	Pause   time.Duration // nothing is sent before; 0: no pause
	Gone    bool          // the endpoint does not want any more
	Extend  time.Duration // for how long the sender renews the lease; 0: it is released
}

// Record writes the result of a batch. It fails with [lease.ErrFenced] when another worker has taken over the
// lease of e, or when the endpoint was disabled or deleted meanwhile. When nothing has
// arrived for giveUp the endpoint is disabled, and the client's other endpoints hear of it.
// A delivery that was replayed meanwhile stays pending. It returns the endpoint as it is now.
func Record(ctx context.Context, tx pgx.Tx, e Endpoint, r Round, giveUp time.Duration) (Endpoint, error) {
	const failing = `$7 AND failing_since <= clock_timestamp() - $11 * interval '1 second'`
	sql, args := Leases.Write(e.Item(), lease.Handover{Extend: r.Extend, Next: &r.Pause, Seen: e.Wakes}, `
		    failures = CASE WHEN $6 THEN 0 WHEN $7 THEN failures + 1 ELSE failures END,
		    failing_since = CASE WHEN $6 THEN NULL WHEN $7 THEN coalesce(failing_since, clock_timestamp()) ELSE failing_since END,
		    slow = $8,
		    paused_until = CASE WHEN $9::float8 > 0 THEN clock_timestamp() + $9 * interval '1 second' END,
		    disabled_at = CASE WHEN $10 OR `+failing+` THEN clock_timestamp() END,
		    disabled_reason = CASE WHEN $10 THEN 'gone' WHEN `+failing+` THEN 'failing' END`, ` AND disabled_at IS NULL AND deleted_at IS NULL`,
		r.Arrived, r.Failed && !r.Arrived, r.Slow, r.Pause.Seconds(), r.Gone, giveUp.Seconds())
	now, err := writeFenced(ctx, tx, "Record", e.ID, sql, args)
	if err != nil {
		return Endpoint{}, err
	}
	var b pgx.Batch
	if len(r.Sent) > 0 {
		queueSent(&b, e.ID, r.Sent)
	}
	if now.DisabledAt != nil {
		b.Queue(`SELECT emit_webhooks(ARRAY[$1::text], ARRAY[$2::text], ARRAY[$3::uuid], ARRAY[NULL::bigint], ARRAY[NULL::uuid])`, e.Client, EndpointDisabled, e.ID)
	}
	return now, fault.At(tx.SendBatch(ctx, &b).Close(), "webhook.Record(%s)", e.ID)
}

// writeFenced is a write of a worker: no row means that it was fenced.
func writeFenced(ctx context.Context, tx pgx.Tx, name string, id uuid.UUID, sql string, args []any) (Endpoint, error) {
	now, err := postgres.CollectOne(ctx, tx, scan, sql+` RETURNING `+columns, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = lease.ErrFenced
	}
	return now, fault.At(err, "webhook.%s(%s)", name, id)
}

func queueSent(b *pgx.Batch, endpointID uuid.UUID, sent []AttemptResult) {
	n := len(sent)
	ids, dues, retries := make([]uuid.UUID, n), make([]time.Time, n), make([]*float64, n)
	ats, durations, statuses, errs := make([]time.Time, n), make([]int64, n), make([]*int, n), make([]*string, n)
	failures := make([]*string, n)
	for i, s := range sent {
		ids[i], dues[i], ats[i], durations[i], statuses[i], errs[i], failures[i] = s.EventID, s.Due, s.At, s.Duration.Milliseconds(), s.Status, s.Error, s.Failure
		if s.Retry != nil {
			seconds := s.Retry.Seconds()
			retries[i] = &seconds
		}
	}
	b.Queue(`
		INSERT INTO webhook_attempts (event_id, endpoint_id, at, duration_ms, status, error, failure)
		SELECT id, $1, at, ms, status, error, failure
		FROM unnest($2::uuid[], $3::timestamptz[], $4::bigint[], $5::smallint[], $6::text[], $7::text[]) AS s (id, at, ms, status, error, failure)`,
		endpointID, ids, ats, durations, statuses, errs, failures)
	// The rows are named by their row ids (ctid): a plan that begins with all that is pending would read a
	// backlog again in every batch.
	b.Queue(`
		UPDATE webhook_deliveries d
		SET attempts = d.attempts + 1,
		    state = CASE WHEN s.error IS NULL THEN 'delivered' WHEN s.retry IS NULL THEN 'failed' ELSE 'pending' END,
		    next_at = CASE WHEN s.error IS NOT NULL THEN clock_timestamp() + s.retry * interval '1 second' END,
		    finished_at = CASE WHEN s.error IS NULL OR s.retry IS NULL THEN clock_timestamp() END
		FROM (SELECT found.tid, u.* FROM unnest($2::uuid[], $3::timestamptz[], $4::float8[], $5::text[]) AS u (id, due, retry, error)
		      CROSS JOIN LATERAL (SELECT ctid AS tid FROM webhook_deliveries WHERE endpoint_id = $1 AND event_id = u.id AND state = 'pending' AND next_at = u.due OFFSET 0) found) s
		WHERE d.ctid = s.tid AND d.state = 'pending'`,
		endpointID, ids, dues, retries, errs)
}

// schedule is how long a delivery waits after each failed attempt. After the last of them
// it is tried once more, and then it has failed.
var schedule = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour}

const (
	longestPause      = time.Hour // of an endpoint, so that it gets everything within an hour of its return
	longestRetryAfter = 24 * time.Hour
	jitterPart        = 10 // waits are longer by up to a tenth, so that not all come back at once
	slowAfter         = 2 * time.Second
)

// retry returns when a delivery is tried again that was tried before times and once more;
// nil: never.
func retry(before int, answer sender.Answer) *time.Duration {
	if before >= len(schedule) {
		return nil
	}
	wait := max(jittered(schedule[before]), asked(answer))
	return &wait
}

// pause is how long an endpoint is paused that has failed before times in a row, and once more.
func pause(before int) time.Duration {
	return jittered(min(schedule[min(before, len(schedule)-1)], longestPause))
}

func asked(answer sender.Answer) time.Duration {
	return min(answer.RetryAfter, longestRetryAfter)
}

func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/jitterPart) //nolint:gosec // it spreads load and keeps no secret
}

// verdict sums a batch up for its endpoint, which has had so many failures before.
func verdict(failures int, sent []AttemptResult) (r Round) {
	unavailable := false
	for _, s := range sent {
		r.Arrived = r.Arrived || s.answer.Arrived()
		r.Gone = r.Gone || s.answer.Gone()
		r.Slow = r.Slow || s.Duration >= slowAfter
		if s.answer.Unavailable() {
			unavailable = true
			r.Pause = max(r.Pause, asked(s.answer))
		}
	}
	r.Failed = !r.Arrived && len(sent) > 0 && (unavailable || len(sent) > 1 || failures > 0) // one event alone may be one that the receiver cannot take
	if r.Failed {
		r.Slow = true
		r.Pause = max(r.Pause, pause(failures))
	}
	return r
}
