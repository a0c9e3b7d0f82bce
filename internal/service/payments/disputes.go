package payments

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/payment"
)

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
