package cards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

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
	logger  *slog.Logger
	metrics *eventMetrics

	mu       sync.Mutex
	versions map[string]bool // other releases of the API that were said already
}

type eventMetrics struct {
	stored   *prometheus.CounterVec // by source
	handled  *prometheus.CounterVec // by outcome
	foreign  prometheus.Counter
	refused  prometheus.Counter
	dispute  *prometheus.CounterVec // by status
	orphaned prometheus.Counter
	others   *prometheus.CounterVec // by refund
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
		dispute: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_disputes_total",
			Help: "Disputes of charges, by status as it was reported."}, []string{"status"}),
		others: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_out_of_band_refunds_total",
			Help: "Refunds of our payments that were made at the provider by somebody else, by what we know of the purchase: none (it is kept here: the books differ) or known (it is given back here, too)."},
			[]string{"refund"}),
		orphaned: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_orphaned_intents_total",
			Help: "Events about money on an intent that is not the one of its purchase's payment. Must stay 0."}),
	}
	registry.MustRegister(m.stored, m.handled, m.foreign, m.refused, m.dispute, m.orphaned, m.others)
	telemetry.Expect(m.others, refundNone, refundKnown)
	telemetry.Expect(m.stored, fromWebhook, fromList)
	telemetry.Expect(m.handled, eventWoken, eventRecorded, eventIgnored, eventUncaptured, eventUnknown)
	telemetry.Expect(m.dispute, "needs_response", "under_review", "won", "lost", "warning_needs_response", "warning_under_review", "warning_closed")
	return &Events{db: db, reader: reader, logger: logger, metrics: m, versions: make(map[string]bool)}
}

// Store stores events that came by webhook, each id once, all in one statement. It
// returns how many of them were new and are to be processed: [EventsTask] is to
// be dispatched when there were any. Most are not: they report our own calls, and what they
// report is stored. An error that is [ErrEvent] is the sender's: another delivery of the
// same events fails too. Any other error means that nothing was stored.
func (e *Events) Store(ctx context.Context, events []payprovider.Event) (open int, err error) {
	stored, err := e.store(ctx, events, fromWebhook)
	return stored.Open, err
}

func (e *Events) store(ctx context.Context, events []payprovider.Event, source eventSource) (stored insertedEvents, err error) {
	if len(events) == 0 {
		return stored, nil
	}
	rows := make([]storedEvent, 0, len(events))
	for _, event := range events {
		if err := e.check(event); err != nil {
			e.metrics.refused.Inc()
			e.logger.Error("an event of the provider is refused", "event_id", event.ID, "type", event.Type, "error", err)
			return stored, err
		}
		rows = append(rows, e.rowOf(event, source))
	}
	failpoint.Hit("payments.events.store", nil)
	stored, err = insertEvents(ctx, e.db, rows)
	if err != nil {
		return stored, fmt.Errorf("cards.Store: %w", err)
	}
	failpoint.Hit("payments.events.stored", nil)
	e.metrics.stored.WithLabelValues(string(source)).Add(float64(len(stored.Fresh)))
	for _, event := range events {
		if e.isForeign(event) && slices.Contains(stored.Fresh, event.ID) { // others come again and again
			e.logForeign(event)
		}
	}
	for outcome, n := range stored.Handled {
		e.metrics.handled.WithLabelValues(string(outcome)).Add(float64(n))
	}
	return stored, nil
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

// isForeign reports whether an event was made for another release of the API.
func (e *Events) isForeign(event payprovider.Event) bool {
	ours := e.reader.APIVersion()
	return ours != "" && event.APIVersion != ours
}

// logForeign counts a foreign event, and warns once of each release.
func (e *Events) logForeign(event payprovider.Event) {
	e.metrics.foreign.Inc()
	if e.firstOf(event.APIVersion) {
		e.logger.Warn("events come in another release of the provider's API: set the webhook endpoint to ours",
			"theirs", event.APIVersion, "ours", e.reader.APIVersion(), "event_id", event.ID)
	}
}

// maxVersions bounds how many releases are remembered as said.
const maxVersions = 100

func (e *Events) firstOf(version string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions[version] || len(e.versions) >= maxVersions {
		return false
	}
	e.versions[version] = true
	return true
}

// rowOf returns what is stored of an event. Bytes that cannot be text in Postgres are left out.
func (e *Events) rowOf(event payprovider.Event, source eventSource) storedEvent {
	about := e.reader.Subjects()[event.Type]
	row := storedEvent{
		ID: event.ID, Type: event.Type, APIVersion: text(event.APIVersion), CreatedAt: event.CreatedAt, Source: source,
		ObjectID: text(event.ObjectID), IntentID: text(event.IntentID), Status: text(event.Status), Reason: text(event.Reason),
		Refundable: event.Refundable, Disputed: event.Disputed, Payload: secret.ReplaceAllString(clean(string(event.Payload)), `"client_secret": null`),
		outcome: postgres.Nullable(outcomeOf[about]), ofState: about == payprovider.AboutPayment,
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

const (
	listOverlap = 2 * time.Minute     // events may appear in the list some time after their creation
	listSettled = 10 * time.Minute    // after which all that are older than the newest have appeared
	listFirst   = time.Hour           // how far back the first listing goes
	listOldest  = 29 * 24 * time.Hour // the provider forgets events after 30 days
	listMost    = 1000                // events in hand at once: a span with more is halved
	listSpans   = 50                  // spans that a run asks for
	storeMost   = 250                 // events in one statement
)

// Missed is what a listing has found.
type Missed struct {
	Listed int  // events that the provider has listed
	Stored int  // of these, those whose webhook had not come
	More   bool // the listing has not come to the present
}

// errMany ends the listing of a span with too many events.
var errMany = errors.New("payments: more events than are taken at once")

// ListMissed asks the provider for events since the last listing, and stores those that
// are not stored yet. It goes forward in spans of time, and notes after each how far it
// has come: so a run that is cut off loses nothing, and the next one continues. It has come to
// the newest event that it has seen, by the provider's clock, and not to the present moment of
// ours: a clock of ours that is ahead would leave out what happens until the provider's is there.
func (e *Events) ListMissed(ctx context.Context, lister payprovider.Provider) (found Missed, err error) {
	until, since, now, ok, err := listedUntil(ctx, e.db)
	if err != nil {
		return found, err
	}
	from := until
	switch {
	case !ok:
		from = now.Add(-listFirst)
		if err := setListedUntil(ctx, e.db, from); err != nil {
			return found, err
		}
	case since < listSettled:
		from = until.Add(-listOverlap)
	}
	if oldest := now.Add(-listOldest); from.Before(oldest) {
		from = oldest
	}
	from, end := from.Truncate(time.Second), now.Truncate(time.Second)
	span := end.Sub(from)
	for range listSpans {
		if !from.Before(end) {
			return found, nil
		}
		to := from.Add(span)
		if to.After(end) {
			to = end
		}
		events, err := e.list(ctx, lister, from, to)
		if errors.Is(err, errMany) && to.Sub(from) > time.Second {
			span = max(to.Sub(from)/2, time.Second).Truncate(time.Second)
			continue
		}
		if err != nil {
			return found, fmt.Errorf("cards.ListMissed: %w", err)
		}
		stored, err := e.storeListed(ctx, events)
		found.Listed += len(events)
		found.Stored += stored
		if err != nil {
			return found, err
		}
		if len(events) > 0 {
			if err := setListedUntil(ctx, e.db, events[len(events)-1].CreatedAt); err != nil {
				return found, err
			}
		}
		from, span = to, max(end.Sub(to), time.Second)
	}
	found.More = from.Before(end)
	return found, nil
}

// list returns the events of a span, the oldest first. A single second is taken whole.
func (e *Events) list(ctx context.Context, lister payprovider.Provider, from, to time.Time) ([]payprovider.Event, error) {
	most := listMost
	if to.Sub(from) <= time.Second {
		most = listMost * 100
	}
	var events []payprovider.Event
	err := lister.ListEvents(ctx, from, to, payprovider.EventTypes(e.reader), func(event payprovider.Event) error {
		if len(events) == most {
			return errMany
		}
		events = append(events, event)
		return nil
	})
	slices.Reverse(events)
	return events, err
}

// storeListed stores events of a list. One that is not for us does not hold up others.
func (e *Events) storeListed(ctx context.Context, events []payprovider.Event) (stored int, err error) {
	events = slices.DeleteFunc(events, func(event payprovider.Event) bool { return e.check(event) != nil })
	for some := range slices.Chunk(events, storeMost) {
		inserted, err := e.store(ctx, some, fromList)
		stored += len(inserted.Fresh)
		if err != nil {
			return stored, err
		}
	}
	return stored, nil
}
