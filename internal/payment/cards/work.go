package cards

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
)

// outcomeOf is what becomes of events that are about nothing we have.
var outcomeOf = map[payprovider.Subject]eventOutcome{
	payprovider.AboutUnknown: eventUnknown, payprovider.AboutNothing: eventIgnored,
}

// EventsTask returns a task that processes stored events, whichever they are.
func EventsTask() queue.Task { return queue.Task{ID: uuidv7.New(), Kind: string(job.KindEvent)} }

// eventBatch is how many events a transaction processes.
const eventBatch = 200

// EventBatch is what a batch of events has done.
type EventBatch struct {
	More     bool          // there may be more
	Payments []payment.Ref // woken: to be dispatched
}

// Process processes stored events, one batch in one transaction. An event decides nothing:
// it wakes its payment, whose runner asks the provider. Many may call Work at once.
func (e *Events) Process(ctx context.Context) (EventBatch, error) {
	var done EventBatch
	var work *eventWork // what was done, to be logged after the commit
	err := postgres.InTx(ctx, e.db, func(tx pgx.Tx) error {
		events, err := takeEvents(ctx, tx, eventBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		work, err = e.subjectsOf(ctx, tx, events)
		if err != nil {
			return err
		}
		for _, event := range events {
			work.take(event)
		}
		if err := work.wakeRefunds(ctx, tx); err != nil {
			return err
		}
		if len(work.wake) > 0 {
			if done.Payments, err = payment.Wake(ctx, tx, work.wake); err != nil {
				return err
			}
		}
		if err := e.recordUnknown(ctx, tx, work); err != nil {
			return err
		}
		var b pgx.Batch
		queueHandled(&b, work.outcomes)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		done.More = len(events) == eventBatch
		failpoint.Hit("payments.events.work", nil)
		return nil
	})
	if err != nil {
		return EventBatch{}, fmt.Errorf("cards.Process: %w", err)
	}
	failpoint.Hit("payments.events.worked", nil)
	if work != nil {
		e.logBatch(work)
	}
	return done, nil
}

// takeEvents locks up to limit events that are not handled, the oldest first. Several
// transactions at once get different events.
func takeEvents(ctx context.Context, tx pgx.Tx, limit int) ([]storedEvent, error) {
	events, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[storedEvent], `
		SELECT id, type, api_version, created_at, source, object_id, intent_id, purchase_id, status, payload, outcome
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
	Charged      bool // it is finished, with money on it
}

// lockSubjects locks the payments of intents, and of purchases, in the order of their
// ids.
func lockSubjects(ctx context.Context, tx pgx.Tx, intents []string, purchases []uuid.UUID) ([]subject, error) {
	found, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[subject], `
		SELECT purchase_id, intent_id, intent_status, phase IN ('settled', 'refund_due') AND received > 0 FROM payments
		WHERE intent_id = ANY($1) OR purchase_id = ANY($2) ORDER BY purchase_id FOR NO KEY UPDATE`, intents, purchases)
	return found, fault.At(err, "cards.lockSubjects")
}

// eventWork is what a batch of events is about, and what it does.
type eventWork struct {
	reader     payprovider.Reader
	byIntent   map[string]*subject
	byPurchase map[uuid.UUID]*subject

	wake     []uuid.UUID
	ofCharge []storedEvent // about refunds and disputes
	orphaned []storedEvent // report money on an intent that is not the payment's
	outcomes map[string]eventOutcome

	unknown []storedEvent                // about payments that our books do not know
	missing []reconciliation.Discrepancy // of these, those of ours, to be logged
}

func (e *Events) subjectsOf(ctx context.Context, tx pgx.Tx, events []storedEvent) (*eventWork, error) {
	w := &eventWork{reader: e.reader, byIntent: make(map[string]*subject), byPurchase: make(map[uuid.UUID]*subject),
		outcomes: make(map[string]eventOutcome, len(events))}
	var intents []string
	var purchases []uuid.UUID
	for _, event := range events {
		if w.about(event) < payprovider.AboutPayment {
			continue
		}
		if event.IntentID != nil {
			intents = append(intents, *event.IntentID)
		}
		if event.PurchaseID != nil {
			purchases = append(purchases, *event.PurchaseID)
		}
	}
	if len(intents)+len(purchases) == 0 {
		return w, nil
	}
	found, err := lockSubjects(ctx, tx, intents, purchases)
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		w.byPurchase[s.PurchaseID] = &s
		if s.IntentID != nil {
			w.byIntent[*s.IntentID] = &s
		}
	}
	return w, nil
}

func (w *eventWork) subjectOf(event storedEvent) *subject {
	if event.IntentID != nil {
		if s, ok := w.byIntent[*event.IntentID]; ok {
			return s
		}
	}
	if event.PurchaseID != nil {
		return w.byPurchase[*event.PurchaseID]
	}
	return nil
}

// purchaseOf is the purchase that an event is about; nil: it is not known.
func (w *eventWork) purchaseOf(event storedEvent) *uuid.UUID {
	if s := w.subjectOf(event); s != nil {
		return &s.PurchaseID
	}
	return event.PurchaseID
}

func (w *eventWork) about(event storedEvent) payprovider.Subject {
	return w.reader.Subjects()[event.Type]
}

// take decides what one event does.
func (w *eventWork) take(event storedEvent) {
	about := w.about(event)
	outcome, known := outcomeOf[about]
	if !known {
		outcome = eventIgnored
	}
	switch about {
	case payprovider.AboutPayment:
		outcome = w.takePayment(event)
	case payprovider.AboutRefund, payprovider.AboutDispute:
		w.ofCharge = append(w.ofCharge, event)
	}
	w.outcomes[event.ID] = outcome
}

// takePayment wakes the payment, unless the event reports what its worker has stored
// already: most events report our own calls.
func (w *eventWork) takePayment(event storedEvent) eventOutcome {
	s := w.subjectOf(event)
	if s == nil {
		w.unknown = append(w.unknown, event)
		return eventIgnored
	}
	if postgres.ValueOf(s.IntentID) != postgres.ValueOf(event.IntentID) {
		switch payprovider.IntentStatus(postgres.ValueOf(event.Status)) {
		case payprovider.Succeeded, payprovider.RequiresCapture, payprovider.Processing:
			w.orphaned = append(w.orphaned, event)
		}
	} else if s.Charged || event.Status != nil && s.IntentStatus != nil && *event.Status == *s.IntentStatus {
		return eventIgnored // also a late one of money that is booked: it changes no more
	}
	if !slices.Contains(w.wake, s.PurchaseID) {
		w.wake = append(w.wake, s.PurchaseID)
	}
	return eventWoken
}

// wakeRefunds makes the refunds due that events are about, and otherwise wakes the payments of their charges. Payments
// are locked by then. The sweep due-items enqueues the tasks of refunds.
func (w *eventWork) wakeRefunds(ctx context.Context, tx pgx.Tx) error {
	if len(w.ofCharge) == 0 {
		return nil
	}
	var purchases []uuid.UUID
	var providerIDs []string // of a refund, or of its charge, which finds none
	for _, event := range w.ofCharge {
		if w.about(event) != payprovider.AboutRefund {
			continue
		}
		if event.ObjectID != nil {
			providerIDs = append(providerIDs, *event.ObjectID)
		}
		if id := w.purchaseOf(event); id != nil {
			purchases = append(purchases, *id)
		}
	}
	woken, err := payment.WakeRefunds(ctx, tx, purchases, providerIDs)
	if err != nil {
		return err
	}
	for _, event := range w.ofCharge {
		id, s := w.purchaseOf(event), w.subjectOf(event)
		switch {
		case w.about(event) == payprovider.AboutRefund && id != nil && slices.Contains(woken, *id): // its worker lists the refunds of the intent
			w.outcomes[event.ID] = eventWoken
		case s == nil || postgres.ValueOf(s.IntentID) != postgres.ValueOf(event.IntentID):
		case !s.Charged:
			w.outcomes[event.ID] = eventUncaptured
		default:
			w.outcomes[event.ID] = eventWoken
			if !slices.Contains(w.wake, s.PurchaseID) {
				w.wake = append(w.wake, s.PurchaseID)
			}
		}
	}
	return nil
}

// logBatch counts what was done and logs what people should know, after the commit.
func (e *Events) logBatch(w *eventWork) {
	for _, outcome := range w.outcomes {
		e.metrics.handled.WithLabelValues(string(outcome)).Inc()
	}
	e.logUnknown(w)
	for _, event := range w.orphaned {
		e.metrics.orphaned.Inc()
		e.logger.Error("money on an intent that is not the one of its purchase's payment", "event_id", event.ID, "type", event.Type,
			"intent", postgres.ValueOf(event.IntentID), "purchase", event.PurchaseID)
	}
}
