package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// maxPayloadBytes bounds the payload of an event.
const maxPayloadBytes = 256 << 10

// Test stores a test event for an endpoint, of a type that it need not want, and its delivery.
func Test(ctx context.Context, tx pgx.Tx, e Endpoint) (Event, error) {
	if err := lockEnabled(ctx, tx, e.ID); err != nil {
		return Event{}, err
	}
	event, err := postgres.CollectOne(ctx, tx, scanEvent, `
		WITH made AS (INSERT INTO webhook_events (id, client, type, subject) VALUES (webhook_event_id(), $1, $2, $3) RETURNING *),
		     sent AS (INSERT INTO webhook_deliveries (event_id, endpoint_id, next_at) SELECT id, $3, at FROM made)
		SELECT `+eventColumns+` FROM made e, webhooks_due(ARRAY[$3::uuid])`, e.Client, EndpointTest, e.ID)
	return event, fault.At(err, "webhook.Test(%s)", e.ID)
}

// eventColumns are the fields of an Event, in order.
const eventColumns = `e.id, e.client, e.type, e.subject, e.version, e.campaign_id, e.at, e.payload`

var scanEvent = pgx.RowToStructByPos[Event]

// GetEvent returns an event, or a not-found Error: also for one that is another client's,
// unless client is empty.
func GetEvent(ctx context.Context, db postgres.DB, client string, id uuid.UUID) (Event, error) {
	e, err := postgres.CollectOne(ctx, db, scanEvent, `
		SELECT `+eventColumns+` FROM webhook_events e WHERE id = $1 AND ($2 = '' OR e.client IS NULL OR e.client = $2)`, id, client)
	if errors.Is(err, pgx.ErrNoRows) {
		return Event{}, fault.New(fault.NotFound, "there is no webhook event %s, or its retention has ended", id)
	}
	return e, fault.At(err, "webhook.GetEvent(%s)", id)
}

// storePayloads stores payloads of events that have none, and returns those that the events
// have then: two workers that render an event at once send the same. Rows are changed in the order
// of their ids, and named by their row ids (ctid), which no plan looks for in the whole table.
func storePayloads(ctx context.Context, db postgres.DB, payloads map[uuid.UUID]json.RawMessage) (map[uuid.UUID]json.RawMessage, error) {
	ids, texts := make([]uuid.UUID, 0, len(payloads)), make([][]byte, 0, len(payloads))
	for id, payload := range payloads {
		ids, texts = append(ids, id), append(texts, payload)
	}
	stored := make(map[uuid.UUID]json.RawMessage, len(payloads))
	mine, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		UPDATE webhook_events e SET payload = n.payload
		FROM (SELECT found.tid, i.payload FROM (SELECT * FROM unnest($1::uuid[], $2::json[]) AS i (id, payload) ORDER BY id) i
		      CROSS JOIN LATERAL (SELECT ctid AS tid FROM webhook_events WHERE id = i.id AND payload IS NULL OFFSET 0) found) n
		WHERE e.ctid = n.tid AND e.payload IS NULL
		RETURNING e.id`, ids, texts)
	if err != nil {
		return nil, fmt.Errorf("webhook.storePayloads: %w", err)
	}
	for _, id := range mine {
		stored[id] = payloads[id]
	}
	if len(mine) == len(payloads) {
		return stored, nil
	}
	others, err := postgres.Collect(ctx, db, scanEvent, `SELECT `+eventColumns+` FROM webhook_events e WHERE id = ANY($1) AND payload IS NOT NULL`, ids)
	if err != nil {
		return nil, fmt.Errorf("webhook.storePayloads: %w", err)
	}
	for _, e := range others {
		stored[e.ID] = e.Payload
	}
	return stored, nil
}

// message returns the body of an event's messages. A document that is too large, or whose
// resource is not there any more, is {id, truncated}.
func message(e Event, document json.RawMessage) json.RawMessage {
	const envelope = 1 << 10
	if len(document) == 0 || len(document) > maxPayloadBytes-envelope {
		document = json.RawMessage(fmt.Sprintf(`{"id":%q,"truncated":true}`, e.Subject))
	}
	return body(e.Type, e.At, document)
}

// body is what a message says. It is put together by hand: json.Marshal would read all of the data again.
func body(kind string, at time.Time, data json.RawMessage) json.RawMessage {
	b := make([]byte, 0, len(data)+len(kind)+80)
	b = append(append(b, `{"type":"`...), kind...) // letters and . _ - only
	b = at.UTC().AppendFormat(append(b, `","timestamp":"`...), time.RFC3339Nano)
	return append(append(append(b, `","data":`...), data...), '}')
}
