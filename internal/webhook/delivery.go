package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
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
		WHERE d.endpoint_id = $1 AND `+inState(f.State)+` AND (coalesce(cardinality($2::text[]), 0) = 0 OR e.type = ANY($2)) AND ($3::uuid IS NULL OR d.event_id < $3)
		ORDER BY d.event_id DESC LIMIT $4`, endpointID, f.Types, postgres.Nullable(before), limit)
	return list, fault.At(err, "webhook.Deliveries(%s)", endpointID)
}

// PendingOf returns how many events wait for each of the endpoints, 1000 at most.
func PendingOf(ctx context.Context, db postgres.DB, endpoints []uuid.UUID) ([]int, error) {
	pending, err := postgres.Collect(ctx, db, pgx.RowTo[int], `
		SELECT (SELECT count(*) FROM (SELECT FROM webhook_deliveries WHERE endpoint_id = e.id AND state = 'pending' LIMIT 1000) d)
		FROM unnest($1::uuid[]) WITH ORDINALITY AS e (id, ordinal) ORDER BY ordinal`, endpoints)
	return pending, fault.At(err, "webhook.PendingOf")
}

// inState is the condition of deliveries in a state. The few that are pending or failed have
// indexes of their own, and those are not used for a state that is a parameter.
func inState(s State) string {
	switch s {
	case "":
		return `true`
	case Pending, Failed, Delivered:
		return `d.state = '` + string(s) + `'`
	}
	return `false`
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
	attempts, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Attempt], `
		SELECT event_id, at, duration_ms * interval '1 millisecond', status, error, failure FROM webhook_attempts
		WHERE endpoint_id = $1 AND event_id = $2 ORDER BY number DESC LIMIT $3`, endpointID, eventID, limit)
	return d, attempts, fault.At(err, "webhook.GetDelivery(%s)", eventID)
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
		return fault.New(fault.NotFound, "there is no event %s for this endpoint, or its retention has ended", eventID)
	}
	return nil
}

// replaysPerSecond is how many events of spans an endpoint is sent in a second at most, however
// many replays are asked for. Its new events come beside them.
const replaysPerSecond = 20

// replaySpan delivers events of a span to an endpoint once more: those that it may hear of
// and wants now, also those that have happened before it was made or while it was disabled. With
// a state it takes only those that have a delivery in that state; with [Missed] those that
// have none. It takes the oldest limit of them, and returns how many it has taken, and when the
// last of them happened: where a next call goes on.
//
// They are due one after the other at [replaysPerSecond], behind all that waits for a first
// attempt. One of these stays in its order, and an attempt that is under way does not count as the
// replay: that is due a microsecond later.
func replaySpan(ctx context.Context, tx pgx.Tx, e Endpoint, span Span, limit int) (n int, last *time.Time, err error) {
	if err := lockEnabled(ctx, tx, e.ID); err != nil {
		return 0, nil, err
	}
	const waits = `endpoint_id = $1 AND state = 'pending' AND attempts = 0`
	err = tx.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT v.id, v.at FROM webhook_events v
			WHERE v.at >= $2 AND v.at < $3 AND (v.client IS NULL OR v.client = $4) AND v.type <> '`+EndpointTest+`' AND webhook_wanted($5, v.type)
			  AND (coalesce(cardinality($6::text[]), 0) = 0 OR v.type = ANY($6))
			  AND ($7 = '' OR $7 = '`+string(Missed)+`' AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE event_id = v.id AND endpoint_id = $1)
			       OR EXISTS (SELECT FROM webhook_deliveries WHERE event_id = v.id AND endpoint_id = $1 AND state = $7))
			ORDER BY v.at, v.id LIMIT $8 FOR KEY SHARE),
		numbered AS (
			SELECT id, row_number() OVER (ORDER BY at, id) AS ordinal FROM chosen
			WHERE NOT EXISTS (SELECT FROM webhook_deliveries WHERE event_id = chosen.id AND `+waits+`)),
		again AS (`+again(`
			SELECT id, $1, (SELECT greatest(clock_timestamp(), max(next_at) + interval '1 microsecond') FROM webhook_deliveries WHERE `+waits+`) + ordinal * interval '1 second' / $9 FROM numbered
			UNION ALL
			SELECT event_id, $1, next_at + interval '1 microsecond' FROM webhook_deliveries WHERE event_id IN (SELECT id FROM chosen) AND `+waits)+`)
		SELECT count(*), max(at) FROM chosen`,
		e.ID, span.From, span.To, e.Client, e.Events, span.Types, string(span.State), limit, replaysPerSecond).Scan(&n, &last)
	return n, last, fault.At(err, "webhook.replaySpan(%s)", e.ID)
}

// again makes deliveries pending: rows of event, endpoint and next_at.
func again(deliveries string) string {
	return `
		INSERT INTO webhook_deliveries AS d (event_id, endpoint_id, next_at) ` + deliveries + ` ORDER BY 1
		ON CONFLICT (endpoint_id, event_id) DO UPDATE SET state = 'pending', attempts = 0, next_at = excluded.next_at, finished_at = NULL`
}

// lockEnabled locks an endpoint to which something is sent because somebody asks for it, so that this and the
// record of what was sent are serialized, and rejects one that is disabled: nothing would be sent.
func lockEnabled(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	var disabled bool
	err := tx.QueryRow(ctx, `SELECT p.disabled_at IS NOT NULL FROM webhook_endpoints p WHERE id = $1 AND `+notDeleted+` FOR NO KEY UPDATE`, id).Scan(&disabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return unknown(id)
	case err != nil:
		return fmt.Errorf("webhook.lockEnabled(%s): %w", id, err)
	case disabled:
		return fault.New(fault.StateConflict, "the endpoint is disabled: enable it first")
	}
	return nil
}
