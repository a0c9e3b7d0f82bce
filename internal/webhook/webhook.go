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

// Types of events. What each of them says is in the contract.
const (
	PurchaseCompleted     = "purchase.completed"
	PurchaseFailed        = "purchase.failed" // of a purchase that was begun; a refusal is job.failed only
	RefundFailed          = "refund.failed"   // or it waits for a person
	DisputeCreated        = "dispute.created" // its subject is the purchase
	HoldCreated           = "hold.created"
	HoldExpired           = "hold.expired"
	CampaignSoldOut       = "campaign.sold_out"
	CampaignFrozen        = "campaign.frozen"
	CampaignVoidAnnounced = "campaign.void_announced"
	CampaignDrawn         = "campaign.drawn"
	JobFailed             = "job.failed" // of workers; the sender of a command has its answer

	WalletCredit = "wallet.credit"

	EndpointTest     = "webhook-endpoint.test"     // asked for; goes to its endpoint, also when that does not want the type
	EndpointDisabled = "webhook-endpoint.disabled" // goes to the client's other endpoints

	EndpointVerification = "webhook-endpoint.verification" // a challenge: sent to an endpoint, and stored nowhere
)

// Types lists the types of events.
var Types = []string{
	"purchase.awaiting_action", PurchaseCompleted, PurchaseFailed, "purchase.cancelled", "purchase.partially_cancelled",
	"purchase.refunded", RefundFailed, DisputeCreated, "dispute.closed", HoldCreated, "hold.released", "hold.used", HoldExpired,
	"campaign.paused", "campaign.resumed", CampaignSoldOut, "campaign.drawing", CampaignFrozen, CampaignVoidAnnounced,
	CampaignDrawn, "campaign.cancelled", JobFailed, WalletCredit, "wallet.debit", "wallet.transfer", "wallet.purchase",
	"wallet.refund", "wallet.authorize", "wallet.capture", "wallet.void", "wallet.expire", EndpointTest, EndpointDisabled,
}

// Reason is why an endpoint is disabled.
type Reason string

// The reasons.
const (
	Asked   Reason = "asked"   // somebody has asked for it
	Gone    Reason = "gone"    // it has answered 410
	Failing Reason = "failing" // nothing has arrived for days

	Unverified Reason = "unverified" // it has not echoed a challenge, see [MostChallenges]
	Revoked    Reason = "revoked"    // the key behind it was revoked
)

// State is how far a delivery has come; doc.go has the diagram.
type State string

// The states.
const (
	Pending   State = "pending"
	Delivered State = "delivered"
	Failed    State = "failed"
)

// Missed is the state of no delivery: in a filter of a replay it stands for the events that
// have none, because the endpoint was disabled, or not there.
const Missed State = "missed"

// MaxPayloadBytes bounds the payload of an event.
const MaxPayloadBytes = 256 << 10

// Endpoint is where a client wants to be told, and of what.
type Endpoint struct {
	ID             uuid.UUID
	Client         string
	URL            string
	Events         []string // patterns: *, purchase.*, purchase.completed
	Description    *string
	MadeBy         string // the prefix of the key that has chosen the address, or enabled it; empty: no key
	CreatedAt      time.Time
	VerifiedAt     *time.Time // nil: nothing but challenges may be sent to URL
	ChallengeError *string    // of the last challenge, as its client sees it
	DisabledAt     *time.Time
	DisabledReason *Reason
	FailingSince   *time.Time // nothing has arrived since
	Failures       int        // turns in vain in a row
	PausedUntil    *time.Time // nothing is sent before
	Slow           bool       // it makes others wait: it has slots apart from theirs
	Version        int64      // the fence of a sender
	Wakes          int
}

// Secret signs an endpoint's messages. It is sealed for the row of the endpoint.
type Secret struct {
	ID         uuid.UUID
	EndpointID uuid.UUID
	Sealed     []byte
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: the present one; others sign too until then
}

// Event is something that has happened.
type Event struct {
	ID         uuid.UUID
	Client     *string // whose resource it is; nil: everybody's
	Type       string
	Subject    uuid.UUID // the resource; of wallet.* the wallet
	Version    *int64    // of wallet.*: that of the wallet's event
	CampaignID *uuid.UUID
	At         time.Time
	Payload    json.RawMessage // the message as it is sent; nil: not rendered yet
}

// Delivery is one event for one endpoint.
type Delivery struct {
	EventID    uuid.UUID
	EndpointID uuid.UUID
	Type       string
	Subject    uuid.UUID
	CampaignID *uuid.UUID
	At         time.Time // of the event
	State      State
	Attempts   int // since it was made or replayed
	NextAt     *time.Time
	CreatedAt  time.Time
	FinishedAt *time.Time
}

// Attempt is what was sent once, and what came of it.
type Attempt struct {
	EventID    uuid.UUID
	EndpointID uuid.UUID
	At         time.Time // when it began
	Duration   time.Duration
	Status     *int    // of the answer; nil: there was none
	Error      *string // with details, for operators; nil: it has arrived
	Failure    *string // as apps see it: timeout, tls, unreachable; nil: there was an answer
}

// QueueEvents writes events that no table tells of by itself: Client, Type, Subject, Version
// and CampaignID of each. One that no endpoint wants is not stored. It locks nothing.
func QueueEvents(b *pgx.Batch, events []Event) {
	n := len(events)
	clients, types, subjects, versions, campaigns := make([]*string, n), make([]string, n), make([]uuid.UUID, n), make([]*int64, n), make([]*uuid.UUID, n)
	for i, e := range events {
		clients[i], types[i], subjects[i], versions[i], campaigns[i] = e.Client, e.Type, e.Subject, e.Version, e.CampaignID
	}
	b.Queue(`SELECT emit_webhooks($1, $2, $3, $4, $5)`, clients, types, subjects, versions, campaigns)
}

// Test stores a test event for an endpoint, of a type that it need not want, and its delivery.
func Test(ctx context.Context, tx pgx.Tx, e Endpoint) (Event, error) {
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
		return Event{}, fault.New(fault.NotFound, "there is no webhook event %s, or it is over its retention", id)
	}
	return e, fault.At(err, "webhook.GetEvent(%s)", id)
}

// StorePayloads stores payloads of events that have none, and returns those that the events
// have then: two workers that render an event at once send the same. Rows are changed in the order
// of their ids, and named by their places, which no plan looks for in the whole table.
func StorePayloads(ctx context.Context, db postgres.DB, payloads map[uuid.UUID]json.RawMessage) (map[uuid.UUID]json.RawMessage, error) {
	ids, texts := make([]uuid.UUID, 0, len(payloads)), make([][]byte, 0, len(payloads))
	for id, payload := range payloads {
		ids, texts = append(ids, id), append(texts, payload)
	}
	stored := make(map[uuid.UUID]json.RawMessage, len(payloads))
	mine, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		UPDATE webhook_events e SET payload = n.payload
		FROM (SELECT found.place, i.payload FROM (SELECT * FROM unnest($1::uuid[], $2::json[]) AS i (id, payload) ORDER BY id) i
		      CROSS JOIN LATERAL (SELECT ctid AS place FROM webhook_events WHERE id = i.id AND payload IS NULL OFFSET 0) found) n
		WHERE e.ctid = n.place AND e.payload IS NULL
		RETURNING e.id`, ids, texts)
	if err != nil {
		return nil, fmt.Errorf("webhook.StorePayloads: %w", err)
	}
	for _, id := range mine {
		stored[id] = payloads[id]
	}
	if len(mine) == len(payloads) {
		return stored, nil
	}
	others, err := postgres.Collect(ctx, db, scanEvent, `SELECT `+eventColumns+` FROM webhook_events e WHERE id = ANY($1) AND payload IS NOT NULL`, ids)
	if err != nil {
		return nil, fmt.Errorf("webhook.StorePayloads: %w", err)
	}
	for _, e := range others {
		stored[e.ID] = e.Payload
	}
	return stored, nil
}

// FailDisabled fails up to limit pending deliveries of endpoints that are disabled, and
// returns how many. It skips what is locked.
func FailDisabled(ctx context.Context, db postgres.DB, limit int) (n int, err error) {
	tag, err := db.Exec(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT d.event_id, d.endpoint_id FROM webhook_endpoints p
			CROSS JOIN LATERAL (
				SELECT event_id, endpoint_id FROM webhook_deliveries WHERE endpoint_id = p.id AND state = 'pending' LIMIT $1 FOR UPDATE SKIP LOCKED) d
			WHERE p.disabled_at IS NOT NULL LIMIT $1)
		UPDATE webhook_deliveries d SET state = 'failed', next_at = NULL, finished_at = clock_timestamp()
		FROM chosen c WHERE d.event_id = c.event_id AND d.endpoint_id = c.endpoint_id`, limit)
	if err != nil {
		return 0, fmt.Errorf("webhook.FailDisabled: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// DeleteEndpoints deletes up to limit deliveries, with their attempts, of endpoints that were
// deleted; and such endpoints of which none is left. It returns how many rows of
// deliveries and endpoints it has deleted.
//
// An endpoint stays for a minute: a transaction that has found it before it was deleted may
// still be about to commit a delivery. DeleteEvents finds deliveries by their endpoints.
func DeleteEndpoints(ctx context.Context, tx pgx.Tx, limit int) (n int, err error) {
	err = tx.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT d.event_id, d.endpoint_id FROM webhook_endpoints p
			CROSS JOIN LATERAL (SELECT event_id, endpoint_id FROM webhook_deliveries WHERE endpoint_id = p.id LIMIT $1 FOR UPDATE SKIP LOCKED) d
			WHERE p.deleted_at IS NOT NULL LIMIT $1),
		     attempts AS (DELETE FROM webhook_attempts a USING chosen c WHERE a.event_id = c.event_id AND a.endpoint_id = c.endpoint_id),
		     deliveries AS (DELETE FROM webhook_deliveries d USING chosen c WHERE d.event_id = c.event_id AND d.endpoint_id = c.endpoint_id RETURNING 1)
		SELECT count(*) FROM deliveries`, limit).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("webhook.DeleteEndpoints: %w", err)
	}
	if n > 0 { // more may be left
		return n, nil
	}
	var ids int
	err = tx.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT id FROM webhook_endpoints p
			WHERE p.deleted_at <= clock_timestamp() - interval '1 minute' AND NOT EXISTS (SELECT FROM webhook_deliveries WHERE endpoint_id = p.id) ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED),
		     secrets AS (DELETE FROM webhook_secrets s USING chosen c WHERE s.endpoint_id = c.id),
		     gone AS (DELETE FROM webhook_endpoints p USING chosen c WHERE p.id = c.id RETURNING 1)
		SELECT count(*) FROM gone`, limit).Scan(&ids)
	return ids, fault.At(err, "webhook.DeleteEndpoints")
}

// DeleteEvents deletes up to limit events that happened longer ago than keep, with their
// deliveries and attempts, the oldest first. It skips what is locked. from is where a call
// before has come to, and nil at first; the next call goes on where this one says.
//
// Each endpoint that may have been told is looked at once: ids of events are in the order of
// time, so its deliveries lie side by side. IS TRUE keeps the planner from a look-up for each
// event and endpoint.
func DeleteEvents(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (n int, to *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH chosen AS MATERIALIZED (
			SELECT id, client, at FROM webhook_events
			WHERE at < (SELECT clock_timestamp()) - $1 * interval '1 second' AND at >= coalesce($2, '-infinity'::timestamptz)
			ORDER BY at LIMIT $3 FOR UPDATE SKIP LOCKED),
		     attempts AS (DELETE FROM webhook_attempts a USING chosen c WHERE a.event_id = c.id),
		     told AS MATERIALIZED (
			SELECT p.id FROM (SELECT DISTINCT client FROM chosen) c CROSS JOIN LATERAL (SELECT id FROM webhook_endpoints WHERE client = c.client OFFSET 0) p
			UNION
			SELECT id FROM webhook_endpoints WHERE EXISTS (SELECT FROM chosen WHERE client IS NULL)),
		     deliveries AS (
			DELETE FROM webhook_deliveries d USING told t
			WHERE d.endpoint_id = t.id AND (d.event_id IN (SELECT id FROM chosen)) IS TRUE
			  AND d.event_id BETWEEN (SELECT id FROM chosen ORDER BY id LIMIT 1) AND (SELECT id FROM chosen ORDER BY id DESC LIMIT 1)),
		     events AS (DELETE FROM webhook_events e USING chosen c WHERE e.id = c.id RETURNING e.at)
		SELECT count(*), max(at) FROM events`, keep.Seconds(), from, limit).Scan(&n, &to)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, from, fmt.Errorf("webhook.DeleteEvents: %w", err)
	}
	if to == nil {
		to = from
	}
	return n, to, nil
}

// Waiting is how many deliveries wait, and for how long the oldest has been due.
type Waiting struct {
	Endpoints int // that something is due for, and that are not paused
	Disabled  int
	Paused    int
	Oldest    time.Duration // of what is due for an endpoint that is not paused
	Failing   time.Duration // for how long nothing has arrived at the endpoint that has failed for the longest time; 0: none fails
	Backlog   int           // events that wait for endpoints that fail, mostBacklog of each at most
}

// mostBacklog bounds what is counted of one endpoint.
const mostBacklog = 20_000

// CountWaiting tells how far deliveries are behind. It reads one row of each endpoint, and the backlog of
// those that fail.
func CountWaiting(ctx context.Context, db postgres.DB) (w Waiting, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE d.next_at IS NOT NULL), count(*) FILTER (WHERE p.disabled_at IS NOT NULL),
		       count(*) FILTER (WHERE p.disabled_at IS NULL AND p.paused_until > clock_timestamp()),
		       coalesce(extract(epoch FROM clock_timestamp() - min(d.next_at)), 0) * interval '1 second',
		       coalesce(extract(epoch FROM clock_timestamp() - min(p.failing_since) FILTER (WHERE p.disabled_at IS NULL)), 0) * interval '1 second',
		       coalesce(sum(b.events), 0)
		FROM webhook_endpoints p
		LEFT JOIN LATERAL (
			SELECT count(*) AS events FROM (
				SELECT FROM webhook_deliveries
				WHERE endpoint_id = p.id AND state = 'pending' AND p.failing_since IS NOT NULL AND p.disabled_at IS NULL LIMIT $1) w) b ON true
		LEFT JOIN LATERAL (
			SELECT next_at FROM webhook_deliveries
			WHERE endpoint_id = p.id AND state = 'pending' AND next_at <= clock_timestamp() AND p.disabled_at IS NULL AND p.verified_at IS NOT NULL
			  AND (p.paused_until IS NULL OR p.paused_until <= clock_timestamp())
			ORDER BY next_at LIMIT 1) d ON true
		WHERE p.deleted_at IS NULL`, mostBacklog).Scan(&w.Endpoints, &w.Disabled, &w.Paused, &w.Oldest, &w.Failing, &w.Backlog)
	return w, fault.At(err, "webhook.CountWaiting")
}
