package cards

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
var outcomeOf = map[payprovider.Subject]payment.EventOutcome{
	payprovider.AboutUnknown: payment.EventUnknown, payprovider.AboutNothing: payment.EventIgnored,
}

// EventsTask returns a task that works off stored events, whichever they are.
func EventsTask() queue.Task { return queue.Task{ID: uuidv7.New(), Kind: string(job.KindEvent)} }

// workBatch is how many events a transaction works off.
const workBatch = 200

// Worked is what a batch of events has done.
type Worked struct {
	Events   int
	More     bool          // there may be more
	Payments []payment.Ref // woken: to be dispatched
}

// Work works off stored events, one batch in one transaction. An event decides nothing:
// it wakes its payment, whose runner asks the provider. Only a dispute is recorded as it
// was told, and never goes back. Many may call Work at once.
func (e *Events) Work(ctx context.Context) (Worked, error) {
	var done Worked
	var work *eventWork // what was done, to be said after the commit
	err := postgres.InTx(ctx, e.db, func(tx pgx.Tx) error {
		events, err := payment.TakeEvents(ctx, tx, workBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		work, err = e.lockSubjects(ctx, tx, events)
		if err != nil {
			return err
		}
		for _, event := range events {
			work.take(event)
		}
		if len(work.wake) > 0 {
			if done.Payments, err = payment.Wake(ctx, tx, work.wake); err != nil {
				return err
			}
		}
		if err := e.wakeRefunds(ctx, tx, work); err != nil {
			return err
		}
		if err := e.noteOutOfBand(ctx, tx, work, events); err != nil {
			return err
		}
		if err := e.recordDisputes(ctx, tx, work); err != nil {
			return err
		}
		if err := e.noteUnknown(ctx, tx, work); err != nil {
			return err
		}
		var b pgx.Batch
		work.queueDisputes(&b)
		payment.QueueHandled(&b, work.outcomes)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		done.Events, done.More = len(events), len(events) == workBatch
		failpoint.Hit("payments.events.work", nil)
		return nil
	})
	if err != nil {
		return Worked{}, fmt.Errorf("payments.Work: %w", err)
	}
	failpoint.Hit("payments.events.worked", nil)
	if work != nil {
		e.say(work)
	}
	return done, nil
}

// RefundHint is an event about a refund: what it may be found by.
type RefundHint struct {
	EventID    string
	ProviderID string     // of the refund, or of its charge, which finds none
	PurchaseID *uuid.UUID // nil: not known
}

// WakeRefunds wakes the refunds that hints are about, in the transaction of the events,
// and returns the ids of the events that have found one. Payments are locked by then.
type WakeRefunds func(ctx context.Context, tx pgx.Tx, hints []RefundHint) (found []string, err error)

// OnRefunds sets what events about refunds do. Call it before the first Work.
func (e *Events) OnRefunds(wake WakeRefunds) { e.refunds = wake }

func (e *Events) wakeRefunds(ctx context.Context, tx pgx.Tx, work *eventWork) error {
	if e.refunds == nil || len(work.refunds) == 0 {
		return nil
	}
	found, err := e.refunds(ctx, tx, work.refunds)
	for _, id := range found {
		work.outcomes[id] = payment.EventWoken
	}
	return err
}

// eventWork is what a batch of events is about, and what it does.
type eventWork struct {
	reader     payprovider.Reader
	byIntent   map[string]*payment.Subject
	byPurchase map[uuid.UUID]*payment.Subject

	wake     []uuid.UUID
	told     []*toldDispute
	disputes []uuid.UUID // payments of which a dispute has changed
	steps    []payment.Step
	refunds  []RefundHint
	orphaned []payment.Event // tell of money on an intent that is not the payment's
	disputed []payment.Event // recorded, or of no payment of ours
	outcomes map[string]payment.EventOutcome

	unknown []payment.Event             // about payments that our books do not know
	missing []reconciliation.Difference // of these, those of ours, to be said

	outOfBandMade, outOfBandFailed []outOfBand // refunds that are not ours, to be said
}

func (e *Events) lockSubjects(ctx context.Context, tx pgx.Tx, events []payment.Event) (*eventWork, error) {
	w := &eventWork{reader: e.reader, byIntent: make(map[string]*payment.Subject), byPurchase: make(map[uuid.UUID]*payment.Subject),
		outcomes: make(map[string]payment.EventOutcome, len(events))}
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
	found, err := payment.LockSubjects(ctx, tx, intents, purchases)
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

func (w *eventWork) subjectOf(event payment.Event) *payment.Subject {
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

func (w *eventWork) about(event payment.Event) payprovider.Subject {
	return w.reader.Subjects()[event.Type]
}

// take decides what one event does.
func (w *eventWork) take(event payment.Event) {
	about := w.about(event)
	outcome, known := outcomeOf[about]
	if !known {
		outcome = payment.EventIgnored
	}
	switch about {
	case payprovider.AboutPayment:
		outcome = w.takePayment(event)
	case payprovider.AboutRefund:
		w.refunds = append(w.refunds, w.hintOf(event))
	case payprovider.AboutDispute:
		outcome = w.takeDispute(event)
	}
	w.outcomes[event.ID] = outcome
}

func (w *eventWork) hintOf(event payment.Event) RefundHint {
	hint := RefundHint{EventID: event.ID, ProviderID: text0(event.ObjectID), PurchaseID: event.PurchaseID}
	if s := w.subjectOf(event); s != nil {
		hint.PurchaseID = &s.PurchaseID
	}
	return hint
}

// takePayment wakes the payment, unless the event tells what its worker has stored
// already: most events tell of our own calls.
func (w *eventWork) takePayment(event payment.Event) payment.EventOutcome {
	s := w.subjectOf(event)
	if s == nil {
		w.unknown = append(w.unknown, event)
		return payment.EventIgnored
	}
	if text0(s.IntentID) != text0(event.IntentID) {
		switch payprovider.IntentStatus(text0(event.Status)) {
		case payprovider.Succeeded, payprovider.RequiresCapture, payprovider.Processing:
			w.orphaned = append(w.orphaned, event)
		}
	} else if event.Status != nil && s.IntentStatus != nil && *event.Status == *s.IntentStatus {
		return payment.EventIgnored
	}
	if !slices.Contains(w.wake, s.PurchaseID) {
		w.wake = append(w.wake, s.PurchaseID)
	}
	return payment.EventWoken
}

// say counts what was done and logs what people should know of, after the commit.
func (e *Events) say(w *eventWork) {
	for _, outcome := range w.outcomes {
		e.metrics.handled.WithLabelValues(string(outcome)).Inc()
	}
	e.sayOutOfBand(w)
	e.sayUnknown(w)
	for _, event := range w.orphaned {
		e.metrics.orphaned.Inc()
		e.logger.Error("money on an intent that is not the one of its purchase's payment", "event_id", event.ID, "type", event.Type,
			"intent", text0(event.IntentID), "purchase", event.PurchaseID)
	}
	for _, event := range w.disputed {
		e.metrics.dispute.WithLabelValues(text0(event.Status)).Inc()
		e.logger.Warn("a charge is disputed", "event_id", event.ID, "type", event.Type, "dispute", text0(event.ObjectID),
			"status", text0(event.Status), "reason", text0(event.Reason), "intent", text0(event.IntentID))
	}
}

// toldDispute is what an event of the batch tells of a dispute.
type toldDispute struct {
	payment.ToldDispute
	event payment.Event
}

// takeDispute keeps what an event tells of a dispute for recordDisputes.
func (w *eventWork) takeDispute(event payment.Event) payment.EventOutcome {
	s := w.subjectOf(event)
	if s == nil || event.ObjectID == nil {
		w.disputed = append(w.disputed, event) // on an account that others use, too, or of a payment that is forgotten
		return payment.EventIgnored
	}
	told := payment.Dispute{ID: *event.ObjectID, Status: text0(event.Status), Reason: text0(event.Reason), Refundable: event.Refundable}
	if event.Disputed != nil {
		told.Disputed = *event.Disputed
	}
	w.told = append(w.told, &toldDispute{event: event, ToldDispute: payment.ToldDispute{PurchaseID: s.PurchaseID, At: event.CreatedAt, Dispute: told}})
	return payment.EventIgnored
}

// recordDisputes records disputes as they were told. Events come in any order: one that is
// older than what is stored changes nothing. A payment may have several disputes.
func (e *Events) recordDisputes(ctx context.Context, tx pgx.Tx, w *eventWork) error {
	if len(w.told) == 0 {
		return nil
	}
	var b pgx.Batch
	for _, told := range w.told {
		payment.QueueDispute(&b, &told.ToldDispute)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	for _, told := range w.told {
		if !told.Newer || told.Before != nil && *told.Before == told.Dispute {
			continue
		}
		w.outcomes[told.event.ID] = payment.EventRecorded
		w.disputed = append(w.disputed, told.event)
		if !slices.Contains(w.disputes, told.PurchaseID) {
			w.disputes = append(w.disputes, told.PurchaseID)
		}
		if told.Before == nil || told.WasClosed && !told.Closed {
			w.steps = append(w.steps, payment.Step{PurchaseID: told.PurchaseID, Event: payment.StepDisputed, Detail: postgres.Nullable(told.Reason)})
		}
		if told.Closed && !(told.WasClosed && told.Before.Status == told.Status) {
			w.steps = append(w.steps, payment.Step{PurchaseID: told.PurchaseID, Event: payment.StepDisputeClosed, Detail: postgres.Nullable(told.Status)})
		}
	}
	return nil
}

func (w *eventWork) queueDisputes(b *pgx.Batch) {
	if len(w.disputes) > 0 {
		payment.QueueDisputed(b, w.disputes)
	}
	if len(w.steps) > 0 {
		payment.QueueSteps(b, w.steps...)
	}
}
