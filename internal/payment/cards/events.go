package cards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
)

// ErrEvent means that an event is not for us, and never will be: of another mode (live
// or test), of another account, or without a usable id. Nothing was stored.
var ErrEvent = errors.New("payments: the event is not for us")

// maxEventName bounds ids and types of events: Stripe's have some 30 characters.
const maxEventName = 255

// Events stores what the provider reports, and processes it.
type Events struct {
	db      postgres.Pool
	reader  payprovider.Reader
	ofState []string // types of events that report the status of an intent
	logger  *slog.Logger
	metrics *eventMetrics

	sayForeign rate.Sometimes // in the log, that events are of another release
}

type eventMetrics struct {
	stored   *prometheus.CounterVec // by source
	handled  *prometheus.CounterVec // by outcome
	foreign  prometheus.Counter
	refused  prometheus.Counter
	orphaned prometheus.Counter
}

// NewEvents returns an Events. reader knows the events of the provider.
func NewEvents(db postgres.Pool, reader payprovider.Reader, logger *slog.Logger, registry prometheus.Registerer) *Events {
	m := &eventMetrics{
		stored: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_events_stored_total",
			Help: "Events of the provider that were stored, by source: webhook, or list for those whose webhook did not come."}, []string{"source"}),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_events_handled_total",
			Help: "Events of the provider that were handled, by outcome."}, []string{"outcome"}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_events_other_version_total",
			Help: "Events that were made for another release of the provider's API than ours. Set the webhook endpoint to our release."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_events_refused_total",
			Help: "Events that were not for us: of another mode or account."}),
		orphaned: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_orphaned_intents_total",
			Help: "Events about money on an intent that is not the one of its purchase's payment. Must stay 0."}),
	}
	registry.MustRegister(m.stored, m.handled, m.foreign, m.refused, m.orphaned)
	telemetry.Expect(m.stored, fromWebhook, fromList)
	telemetry.Expect(m.handled, eventWoken, eventRecorded, eventIgnored, eventUncaptured, eventUnknown)
	var ofState []string
	for name, about := range reader.Subjects() {
		if about == payprovider.AboutPayment {
			ofState = append(ofState, name)
		}
	}
	return &Events{db: db, ofState: ofState, reader: reader, logger: logger, metrics: m, sayForeign: rate.Sometimes{First: 1, Interval: time.Hour}}
}

// Store stores events that came by webhook, each id once, all in one statement. It
// returns how many of them were new and are to be processed: [EventsTask] is to
// be dispatched when there were any. Most are not: they report our own calls, and what they
// report is stored. An error that is [ErrEvent] is the sender's: another delivery of the
// same events fails too. Any other error means that nothing was stored.
func (e *Events) Store(ctx context.Context, events []payprovider.Event) (open int, err error) {
	_, open, err = e.store(ctx, events, fromWebhook)
	return open, err
}

// store stores events that are not stored yet. Each id is stored once, however often and by whatever source it
// comes. An event whose status of the intent is stored already is handled at once: no work is left for it,
// also when other statuses have followed since. No payment is locked for that.
func (e *Events) store(ctx context.Context, events []payprovider.Event, source eventSource) (fresh, open int, err error) {
	if len(events) == 0 {
		return 0, 0, nil
	}
	rows := make([]storedEvent, 0, len(events))
	for _, event := range events {
		if err := e.check(event); err != nil {
			e.metrics.refused.Inc()
			e.logger.Error("an event of the provider is refused", "event_id", event.ID, "type", event.Type, "error", err)
			return 0, 0, err
		}
		rows = append(rows, e.rowOf(event, source))
	}
	slices.SortFunc(rows, func(a, b storedEvent) int { return cmp.Compare(a.ID, b.ID) }) // two inserts of the same events wait in one order
	failpoint.Hit("payments.events.store", nil)
	type inserted struct {
		ID      string
		Outcome *eventOutcome
	}
	stored, err := postgres.Collect(ctx, e.db, pgx.RowToStructByPos[inserted], `
		INSERT INTO payment_events (id, type, api_version, created_at, source, object_id, intent_id, purchase_id, status, payload, outcome, handled_at)
		SELECT e.id, e.type, e.api_version, e.created_at, e.source, e.object_id, e.intent_id, e.purchase_id, e.status, e.payload,
		       o.outcome, CASE WHEN o.outcome IS NOT NULL THEN clock_timestamp() END
		FROM json_populate_recordset(NULL::payment_events, $1::json) e,
		     LATERAL (SELECT coalesce(e.outcome, CASE WHEN e.type = ANY($2) AND e.status =
		         (SELECT p.intent_status FROM payments p WHERE p.intent_id = e.intent_id) THEN 'ignored' END) AS outcome) o
		ON CONFLICT (id) DO NOTHING RETURNING id, outcome`, rows, e.ofState)
	if err != nil {
		return 0, 0, fmt.Errorf("cards.Store: %w", err)
	}
	failpoint.Hit("payments.events.stored", nil)
	e.metrics.stored.WithLabelValues(string(source)).Add(float64(len(stored)))
	for _, row := range stored {
		if row.Outcome == nil {
			open++
		} else {
			e.metrics.handled.WithLabelValues(string(*row.Outcome)).Inc()
		}
	}
	for _, event := range events {
		if event.APIVersion != e.reader.APIVersion() && slices.ContainsFunc(stored, func(row inserted) bool { return row.ID == event.ID }) { // others come again and again
			e.metrics.foreign.Inc()
			e.sayForeign.Do(func() {
				e.logger.Warn("events come in another release of the provider's API: set the webhook endpoint to ours",
					"theirs", event.APIVersion, "ours", e.reader.APIVersion(), "event_id", event.ID)
			})
		}
	}
	return len(stored), open, nil
}

// check refuses events that are not for us.
func (e *Events) check(event payprovider.Event) error {
	switch {
	case event.ID == "" || len(event.ID) > maxEventName || event.Type == "" || len(event.Type) > maxEventName ||
		event.ID != clean(event.ID) || event.Type != clean(event.Type):
		return fmt.Errorf("%w: it has no usable id or type", ErrEvent)
	case event.Livemode != e.reader.Live():
		return fmt.Errorf("%w: it has livemode %t, our key has %t", ErrEvent, event.Livemode, e.reader.Live())
	case event.Account != "":
		return fmt.Errorf("%w: it is of a connected account", ErrEvent)
	}
	return nil
}

// rowOf returns what is stored of an event. Bytes that cannot be text in Postgres are left out.
func (e *Events) rowOf(event payprovider.Event, source eventSource) storedEvent {
	row := storedEvent{
		ID: event.ID, Type: event.Type, APIVersion: text(event.APIVersion), CreatedAt: event.CreatedAt, Source: source,
		ObjectID: text(event.ObjectID), IntentID: text(event.IntentID), Status: text(event.Status),
		Payload: secret.ReplaceAllString(clean(string(event.Payload)), `"client_secret": null`),
		Outcome: postgres.Nullable(outcomeOf[e.reader.Subjects()[event.Type]]),
	}
	if id, err := uuid.Parse(event.Metadata[payprovider.PurchaseKey]); err == nil {
		row.PurchaseID = &id
	}
	if row.CreatedAt.IsZero() {
		row.CreatedAt = time.Unix(0, 0)
	}
	return row
}

// secret is what a client can pay or change a payment with. Nobody needs it later.
var secret = regexp.MustCompile(`"client_secret"\s*:\s*"[^"]*"`)

func text(s string) *string { return postgres.Nullable(clean(s)) }

func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "") }

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
	eventRecorded eventOutcome = "recorded" // a payment that our books do not know
	eventIgnored  eventOutcome = "ignored"  // it reports nothing new, or is about nothing of ours
	eventUnknown  eventOutcome = "unknown"  // of a type that we do not know

	// A refund or dispute of a payment that is not finished, or has received nothing, as far as we know. It has
	// released an authorization, or our books are late: [payment.QueueSettle] opens it again when the payment has
	// received something.
	eventUncaptured eventOutcome = "uncaptured"
)

// storedEvent is what the provider has reported. It is a hint: a decision fetches the
// object.
type storedEvent struct {
	ID         string        `json:"id"`
	Type       string        `json:"type"`
	APIVersion *string       `json:"api_version"`
	CreatedAt  time.Time     `json:"created_at"` // by the provider's clock
	Source     eventSource   `json:"source"`
	ObjectID   *string       `json:"object_id"`
	IntentID   *string       `json:"intent_id"`
	PurchaseID *uuid.UUID    `json:"purchase_id"` // as the object's metadata say
	Status     *string       `json:"status"`      // of the object, when the event was made
	Payload    string        `json:"payload"`
	Outcome    *eventOutcome `json:"outcome"` // nil: it is to be processed
}
