package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

const deliveryColumns = `d.event_id, d.endpoint_id, e.type, e.subject, e.campaign_id, e.at, d.state, d.attempts, d.next_at, d.created_at, d.finished_at`

// Filter says which deliveries are meant; zero fields are no condition.
type Filter struct {
	State State
	Types []string // exact ones
}

// Deliveries returns deliveries of an endpoint, newest events first, before the given event
// (zero: from the start).
func Deliveries(ctx context.Context, db postgres.DB, endpointID uuid.UUID, f Filter, before uuid.UUID, limit int) ([]Delivery, error) {
	list, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Delivery], `
		SELECT `+deliveryColumns+` FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
		WHERE d.endpoint_id = $1 AND `+inState(f.State)+` AND (cardinality($2::text[]) = 0 OR e.type = ANY($2)) AND ($3::uuid IS NULL OR d.event_id < $3)
		ORDER BY d.event_id DESC LIMIT $4`, endpointID, types(f.Types), postgres.Nullable(before), limit)
	return list, fault.At(err, "webhook.Deliveries(%s)", endpointID)
}

// inState is the condition of deliveries in a state. The few that are pending or failed have
// indexes of their own, and those are not used for a state that is a parameter.
func inState(s State) string {
	switch s {
	case "":
		return `true`
	case Pending:
		return `d.state = 'pending'`
	case Failed:
		return `d.state = 'failed'`
	case Delivered:
		return `d.state = 'delivered'`
	}
	return `false`
}

func types(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// GetDelivery returns the delivery of an event for an endpoint with its attempts, the newest
// first and at most limit, or a not-found Error.
func GetDelivery(ctx context.Context, db postgres.DB, endpointID, eventID uuid.UUID, limit int) (Delivery, []Attempt, error) {
	d, err := postgres.CollectOne(ctx, db, pgx.RowToStructByPos[Delivery], `
		SELECT `+deliveryColumns+` FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
		WHERE d.endpoint_id = $1 AND d.event_id = $2`, endpointID, eventID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Delivery{}, nil, fault.New(fault.NotFound, "there is no delivery of event %s for this endpoint", eventID)
	}
	if err != nil {
		return Delivery{}, nil, fmt.Errorf("webhook.GetDelivery(%s): %w", eventID, err)
	}
	attempts, err := postgres.Collect(ctx, db, scanAttempt, `
		SELECT event_id, endpoint_id, at, duration_ms, status, error, failure FROM webhook_attempts
		WHERE endpoint_id = $1 AND event_id = $2 ORDER BY number DESC LIMIT $3`, endpointID, eventID, limit)
	if err != nil {
		return Delivery{}, nil, fmt.Errorf("webhook.GetDelivery(%s): %w", eventID, err)
	}
	return d, attempts, nil
}

func scanAttempt(row pgx.CollectableRow) (a Attempt, err error) {
	var ms int64
	err = row.Scan(&a.EventID, &a.EndpointID, &a.At, &ms, &a.Status, &a.Error, &a.Failure)
	a.Duration = time.Duration(ms) * time.Millisecond
	return a, err
}

// Replay delivers an event to an endpoint once more, at once, with all its attempts before
// it. The event must be one that the endpoint may hear of, and within its retention;
// otherwise Replay fails with a not-found Error; for an endpoint that is disabled, with a
// state-conflict one.
func Replay(ctx context.Context, tx pgx.Tx, e Endpoint, eventID uuid.UUID) error {
	if err := lockEnabled(ctx, tx, e.ID); err != nil {
		return err
	}
	var n int
	err := tx.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT v.id FROM webhook_events v
			WHERE v.id = $2 AND (v.client IS NULL OR v.client = $3)
			  AND (webhook_wanted($4, v.type) OR EXISTS (SELECT FROM webhook_deliveries WHERE event_id = v.id AND endpoint_id = $1))
			FOR KEY SHARE),
		again AS (`+again(`SELECT id, $1, clock_timestamp() FROM chosen`)+`)
		SELECT count(*) FROM chosen, webhooks_due(ARRAY[$1::uuid])`, e.ID, eventID, e.Client, e.Events).Scan(&n)
	switch {
	case err != nil:
		return fmt.Errorf("webhook.Replay(%s): %w", eventID, err)
	case n == 0:
		return fault.New(fault.NotFound, "there is no event %s that this endpoint may hear of, or it is over its retention", eventID)
	}
	return nil
}

// ReplaysPerSecond is how many events of spans an endpoint is sent in a second at most, however
// many replays are asked for. Its new events come beside them.
const ReplaysPerSecond = 20

// ReplaySpan delivers events of [from, to) to an endpoint once more: those that it may hear of
// and wants now, also those that have happened before it was made or while it was disabled. With
// a state in f it takes only those that have a delivery in that state; with [Missed] those that
// have none. It takes the oldest limit of them, and returns how many it has taken, and when the
// last of them happened: where a next call goes on.
//
// They are due one after the other at [ReplaysPerSecond], behind all that waits for a first
// attempt. One of these keeps its place, and an attempt that is under way is not taken for the
// replay: its place is a microsecond later.
func ReplaySpan(ctx context.Context, tx pgx.Tx, e Endpoint, from, to time.Time, f Filter, limit int) (n int, last *time.Time, err error) {
	if err := lockEnabled(ctx, tx, e.ID); err != nil {
		return 0, nil, err
	}
	const waits = `endpoint_id = $1 AND state = 'pending' AND attempts = 0`
	err = tx.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT v.id, v.at FROM webhook_events v
			WHERE v.at >= $2 AND v.at < $3 AND (v.client IS NULL OR v.client = $4) AND v.type <> '`+EndpointTest+`' AND webhook_wanted($5, v.type)
			  AND (cardinality($6::text[]) = 0 OR v.type = ANY($6))
			  AND ($7 = '' OR $7 = '`+string(Missed)+`' AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE event_id = v.id AND endpoint_id = $1)
			       OR EXISTS (SELECT FROM webhook_deliveries WHERE event_id = v.id AND endpoint_id = $1 AND state = $7))
			ORDER BY v.at, v.id LIMIT $8 FOR KEY SHARE),
		placed AS (
			SELECT id, row_number() OVER (ORDER BY at, id) AS place FROM chosen
			WHERE NOT EXISTS (SELECT FROM webhook_deliveries WHERE event_id = chosen.id AND `+waits+`)),
		again AS (`+again(`
			SELECT id, $1, (SELECT greatest(clock_timestamp(), max(next_at) + interval '1 microsecond') FROM webhook_deliveries WHERE `+waits+`) + place * interval '1 second' / $9 FROM placed
			UNION ALL
			SELECT event_id, $1, next_at + interval '1 microsecond' FROM webhook_deliveries WHERE event_id IN (SELECT id FROM chosen) AND `+waits)+`)
		SELECT count(*), max(at) FROM chosen`,
		e.ID, from, to, e.Client, e.Events, types(f.Types), string(f.State), limit, ReplaysPerSecond).Scan(&n, &last)
	return n, last, fault.At(err, "webhook.ReplaySpan(%s)", e.ID)
}

// again makes deliveries pending: rows of event, endpoint and next_at.
func again(deliveries string) string {
	return `
		INSERT INTO webhook_deliveries AS d (event_id, endpoint_id, next_at) ` + deliveries + ` ORDER BY 1
		ON CONFLICT (endpoint_id, event_id) DO UPDATE SET state = 'pending', attempts = 0, next_at = excluded.next_at, finished_at = NULL`
}

// lockEnabled locks an endpoint, so that a replay and the record of what was sent take turns,
// and refuses one that is disabled: nothing would be sent.
func lockEnabled(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	var disabled bool
	err := tx.QueryRow(ctx, `SELECT p.disabled_at IS NOT NULL FROM webhook_endpoints p WHERE id = $1 AND `+lives+` FOR NO KEY UPDATE`, id).Scan(&disabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return unknown(id)
	case err != nil:
		return fmt.Errorf("webhook.lockEnabled(%s): %w", id, err)
	case disabled:
		return fault.New(fault.StateConflict, "the endpoint %s is disabled: enable it first", id)
	}
	return nil
}

// Agenda is the table of endpoints that something is due for. An endpoint that fails, or
// answers slowly, has tasks of a kind of their own.
var Agenda = lease.Table{Name: "webhook_endpoints", As: "p", Key: "id", Kind: `CASE WHEN p.slow THEN '` + KindSlow + `' ELSE '` + Kind + `' END`, Open: open,
	Due: open + ` AND (p.verified_at IS NULL OR EXISTS (SELECT FROM webhook_deliveries d WHERE d.endpoint_id = p.id AND d.state = 'pending' AND d.next_at <= clock_timestamp()))`}

// The kinds of tasks.
const (
	Kind     = "webhook"
	KindSlow = "webhook-slow"
)

// TurnAgain is after how long an endpoint whose task was lost gets another one; more do no harm.
const TurnAgain = 10 * time.Second

// DueNotice is the notice with which a commit names endpoints that something may be due for. Its
// detail are their ids, with commas between them.
const DueNotice = "webhook endpoints are due"

// open is the condition of endpoints that may be sent to: events, or a challenge.
const open = mayChallenge + ` AND p.disabled_at IS NULL AND p.deleted_at IS NULL AND (p.paused_until IS NULL OR p.paused_until <= clock_timestamp())`

// Item returns the endpoint as an agenda item.
func (e Endpoint) Item() lease.Item {
	kind := Kind
	if e.Slow {
		kind = KindSlow
	}
	return lease.Item{ID: e.ID, Version: e.Version, Kind: kind}
}

// Claim gives an endpoint to a worker, see [lease.Claim]; not one that nothing may be sent
// to now.
func Claim(ctx context.Context, db postgres.DB, item lease.Item, until time.Duration) (e Endpoint, ok bool, err error) {
	return lease.Claim(ctx, db, Agenda, item, until, `, challenged_at`, `, CASE WHEN p.verified_at IS NULL THEN now.at ELSE p.challenged_at END`, columns, scan)
}

// ClientOf returns whose an endpoint is; empty: there is none.
func ClientOf(ctx context.Context, db postgres.DB, id uuid.UUID) (client string, err error) {
	err = db.QueryRow(ctx, `SELECT coalesce((SELECT client FROM webhook_endpoints WHERE id = $1), '')`, id).Scan(&client)
	return client, fault.At(err, "webhook.ClientOf(%s)", id)
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
		LEFT JOIN purchases p ON p.id = e.subject
		LEFT JOIN jobs j ON j.id = coalesce(p.job_id, e.subject) ORDER BY d.next_at, d.event_id`, endpointID, limit)
	return due, fault.At(err, "webhook.DueEvents(%s)", endpointID)
}

// Sent is what came of an attempt, and what becomes of its delivery.
type Sent struct {
	Attempt
	Due   time.Time      // since when the delivery was: a replay or an attempt of somebody else changes it
	Retry *time.Duration // nil: it has arrived, or was tried for the last time
}

// Round is what came of several attempts for one endpoint, and what becomes of it.
type Round struct {
	Sent    []Sent
	Arrived bool          // one of them at least
	Failed  bool          // all of them, and not by the fault of one event
	Slow    bool          // it makes others wait
	Pause   time.Duration // nothing is sent before; 0: no pause
	Gone    bool          // the endpoint does not want any more
	Keep    time.Duration // for how long the sender keeps the lease; 0: it is given back
}

// Record writes what came of a round. It fails with [lease.ErrFenced] when the lease that e has
// was taken over, or when the endpoint was disabled or deleted meanwhile. When nothing has
// arrived for giveUp the endpoint is disabled, and the client's other endpoints hear of it.
// A delivery that was replayed meanwhile stays pending. It returns the endpoint as it is now.
func Record(ctx context.Context, tx pgx.Tx, e Endpoint, r Round, giveUp time.Duration) (Endpoint, error) {
	const failing = `$7 AND failing_since <= clock_timestamp() - $11 * interval '1 second'`
	sql, args := Agenda.Write(e.Item(), lease.Handover{Keep: r.Keep, Next: &r.Pause, Seen: e.Wakes}, `
		    failures = CASE WHEN $6 THEN 0 WHEN $7 THEN failures + 1 ELSE failures END,
		    failing_since = CASE WHEN $6 THEN NULL WHEN $7 THEN coalesce(failing_since, clock_timestamp()) ELSE failing_since END,
		    slow = $8,
		    paused_until = CASE WHEN $9::float8 > 0 THEN clock_timestamp() + $9 * interval '1 second' END,
		    disabled_at = CASE WHEN $10 OR `+failing+` THEN clock_timestamp() END,
		    disabled_reason = CASE WHEN $10 THEN 'gone' WHEN `+failing+` THEN 'failing' END`, ` AND disabled_at IS NULL AND deleted_at IS NULL`,
		r.Arrived, r.Failed && !r.Arrived, r.Slow, r.Pause.Seconds(), r.Gone, giveUp.Seconds())
	now, err := postgres.CollectOne(ctx, tx, scan, sql+` RETURNING `+columns, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Endpoint{}, fmt.Errorf("webhook.Record(%s): %w", e.ID, lease.ErrFenced)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("webhook.Record(%s): %w", e.ID, err)
	}
	var b pgx.Batch
	if len(r.Sent) > 0 {
		queueSent(&b, e.ID, r.Sent)
	}
	if now.DisabledAt != nil {
		QueueEvents(&b, []Event{{Client: &e.Client, Type: EndpointDisabled, Subject: e.ID}})
	}
	if b.Len() == 0 {
		return now, nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return Endpoint{}, fmt.Errorf("webhook.Record(%s): %w", e.ID, err)
	}
	return now, nil
}

func queueSent(b *pgx.Batch, endpointID uuid.UUID, sent []Sent) {
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
	// The rows are named by their places: a plan that begins with all that is pending would read a
	// backlog again in every round.
	b.Queue(`
		UPDATE webhook_deliveries d
		SET attempts = d.attempts + 1,
		    state = CASE WHEN s.error IS NULL THEN 'delivered' WHEN s.retry IS NULL THEN 'failed' ELSE 'pending' END,
		    next_at = CASE WHEN s.error IS NOT NULL THEN clock_timestamp() + s.retry * interval '1 second' END,
		    finished_at = CASE WHEN s.error IS NULL OR s.retry IS NULL THEN clock_timestamp() END
		FROM (SELECT found.place, u.* FROM unnest($2::uuid[], $3::timestamptz[], $4::float8[], $5::text[]) AS u (id, due, retry, error)
		      CROSS JOIN LATERAL (SELECT ctid AS place FROM webhook_deliveries WHERE endpoint_id = $1 AND event_id = u.id AND state = 'pending' AND next_at = u.due OFFSET 0) found) s
		WHERE d.ctid = s.place AND d.state = 'pending'`,
		endpointID, ids, dues, retries, errs)
}
