package cards

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
)

// eventSource is how an event came to us.
type eventSource string

// The sources.
const (
	fromWebhook eventSource = "webhook"
	fromList    eventSource = "list" // its webhook did not come, or not yet
)

// eventOutcome is what an event has done.
type eventOutcome string

// The outcomes of events.
const (
	eventWoken    eventOutcome = "woken"    // its payment or refund is checked
	eventRecorded eventOutcome = "recorded" // a dispute
	eventIgnored  eventOutcome = "ignored"  // it reports nothing new, or is about nothing of ours
	eventUnknown  eventOutcome = "unknown"  // of a type that we do not know

	// A refund of a payment that has received nothing, as far as we know. It has released an authorization,
	// or our books are late: [payment.QueueFinalize] opens it again when the payment has received something.
	eventUncaptured eventOutcome = "uncaptured"
)

// storedEvent is what the provider has reported. It is a hint: a decision fetches the
// object.
type storedEvent struct {
	ID         string
	Type       string
	APIVersion *string
	CreatedAt  time.Time // by the provider's clock
	Source     eventSource
	ObjectID   *string
	IntentID   *string
	PurchaseID *uuid.UUID // as the object's metadata say
	Status     *string    // of the object, when the event was made
	Reason     *string    // of a dispute
	Refundable bool       // of a dispute: its charge can be refunded
	Disputed   *payprovider.Disputed
	Payload    string

	// What is known of a new one before its payment is read.
	outcome *eventOutcome // it has nothing to do; nil: it is to be processed
	ofState bool          // it reports the status of an intent, and does nothing if just that is stored already
}

// insertedEvents is what insertEvents has done.
type insertedEvents struct {
	Fresh   []string             // ids of the events that were not stored yet
	Open    int                  // of these, those that are to be processed
	Handled map[eventOutcome]int // of these, the others
}

// insertEvents stores events that are not stored yet. Each id is stored once, however
// often and by whatever source it comes. An event whose status of the intent is stored
// already is handled at once: no work is left for it, also when other statuses have followed
// since. No payment is locked for that.
func insertEvents(ctx context.Context, db postgres.DB, events []storedEvent) (done insertedEvents, err error) {
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b storedEvent) int { return cmp.Compare(a.ID, b.ID) }) // two inserts of the same events wait in one order
	n := len(events)
	ids, types, versions, created := make([]string, n), make([]string, n), make([]*string, n), make([]time.Time, n)
	sources, objects, intents := make([]string, n), make([]*string, n), make([]*string, n)
	purchases, statuses, reasons, payloads := make([]*uuid.UUID, n), make([]*string, n), make([]*string, n), make([]string, n)
	known, ofState, refundable, disputed := make([]*eventOutcome, n), make([]bool, n), make([]bool, n), make([]*payprovider.Disputed, n)
	for i, e := range events {
		ids[i], types[i], versions[i], created[i], sources[i] = e.ID, e.Type, e.APIVersion, e.CreatedAt, string(e.Source)
		objects[i], intents[i], purchases[i] = e.ObjectID, e.IntentID, e.PurchaseID
		statuses[i], reasons[i], payloads[i] = e.Status, e.Reason, e.Payload
		known[i], ofState[i], refundable[i], disputed[i] = e.outcome, e.ofState, e.Refundable, e.Disputed
	}
	type inserted struct {
		ID      string
		Outcome *eventOutcome
	}
	rows, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[inserted], `
		INSERT INTO payment_events (id, type, api_version, created_at, source, object_id, intent_id, purchase_id, status, reason, payload, refundable, disputed, outcome, handled_at)
		SELECT e.id, e.type, e.api_version, e.created_at, e.source, e.object_id, e.intent_id, e.purchase_id, e.status, e.reason, e.payload,
		       e.refundable, e.disputed, o.outcome, CASE WHEN o.outcome IS NOT NULL THEN clock_timestamp() END
		FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::text[], $10::text[], $11::text[],
		            $12::text[], $13::boolean[], $14::boolean[], $15::json[])
		     AS e (id, type, api_version, created_at, source, object_id, intent_id, purchase_id, status, reason, payload, known, of_state, refundable, disputed),
		     LATERAL (SELECT coalesce(e.known, CASE WHEN e.of_state AND e.status =
		         (SELECT p.intent_status FROM payments p WHERE p.intent_id = e.intent_id) THEN 'ignored' END) AS outcome) o
		ON CONFLICT (id) DO NOTHING RETURNING id, outcome`,
		ids, types, versions, created, sources, objects, intents, purchases, statuses, reasons, payloads, known, ofState, refundable, disputed)
	if err != nil {
		return insertedEvents{}, fmt.Errorf("cards.insertEvents: %w", err)
	}
	done.Handled = make(map[eventOutcome]int)
	for _, row := range rows {
		done.Fresh = append(done.Fresh, row.ID)
		if row.Outcome == nil {
			done.Open++
		} else {
			done.Handled[*row.Outcome]++
		}
	}
	return done, nil
}

// takeEvents locks up to limit events that are not handled, the oldest first. Several
// transactions at once get different events.
func takeEvents(ctx context.Context, tx pgx.Tx, limit int) ([]storedEvent, error) {
	events, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[storedEvent], `
		SELECT id, type, api_version, created_at, source, object_id, intent_id, purchase_id, status, reason, refundable, disputed, payload
		FROM payment_events WHERE handled_at IS NULL ORDER BY received_at LIMIT $1 FOR UPDATE SKIP LOCKED`, limit)
	return events, fault.At(err, "cards.takeEvents")
}

// queueHandled marks events that takeEvents has locked as handled.
func queueHandled(b *pgx.Batch, outcomes map[string]eventOutcome) {
	ids, what := make([]string, 0, len(outcomes)), make([]string, 0, len(outcomes))
	for id, outcome := range outcomes {
		ids, what = append(ids, id), append(what, string(outcome))
	}
	b.Queue(`
		UPDATE payment_events e SET handled_at = clock_timestamp(), outcome = o.outcome
		FROM unnest($1::text[], $2::text[]) AS o (id, outcome) WHERE e.id = o.id AND e.handled_at IS NULL`, ids, what).
		Exec(postgres.Exactly(len(ids), "open events"))
}

// subject is a payment that events may be about.
type subject struct {
	PurchaseID   uuid.UUID
	IntentID     *string
	IntentStatus *string
	Received     money.Amount
}

// lockSubjects locks the payments of intents, and of purchases, in the order of their
// ids.
func lockSubjects(ctx context.Context, tx pgx.Tx, intents []string, purchases []uuid.UUID) ([]subject, error) {
	found, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[subject], `
		SELECT purchase_id, intent_id, intent_status, received FROM payments
		WHERE intent_id = ANY($1) OR purchase_id = ANY($2) ORDER BY purchase_id FOR NO KEY UPDATE`, intents, purchases)
	return found, fault.At(err, "cards.lockSubjects")
}

// listedUntil returns up to when the provider's events were listed, by its clock, for how long
// that has stayed so, and the present moment of the database. ok is false when they never were.
func listedUntil(ctx context.Context, db postgres.DB) (until time.Time, since time.Duration, now time.Time, ok bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT l.one IS NOT NULL, coalesce(l.until, now.at), coalesce(now.at - l.moved_at, interval '0'), now.at
		FROM (SELECT clock_timestamp() AS at) now LEFT JOIN payment_events_listed l ON true`).Scan(&ok, &until, &since, &now)
	return until, since, now, ok, fault.At(err, "cards.listedUntil")
}

// setListedUntil notes that the events before until were listed. It never goes back.
func setListedUntil(ctx context.Context, db postgres.DB, until time.Time) error {
	_, err := db.Exec(ctx, `
		INSERT INTO payment_events_listed (until) VALUES ($1)
		ON CONFLICT (one) DO UPDATE SET until = excluded.until, moved_at = excluded.moved_at WHERE payment_events_listed.until < excluded.until`, until)
	return fault.At(err, "cards.setListedUntil")
}
