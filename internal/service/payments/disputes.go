package payments

import (
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/payment"
)

// closed are the statuses in which a dispute stays.
var closed = map[string]bool{"won": true, "lost": true, "warning_closed": true, "prevented": true}

// takeDispute records a dispute. Events come in any order: a closed one stays closed,
// and an open dispute stays on record when another one is closed.
func (w *eventWork) takeDispute(event payment.Event) payment.EventOutcome {
	s := w.subjectOf(event)
	if s == nil || event.ObjectID == nil {
		w.disputed = append(w.disputed, event) // on an account that others use, too, or of a payment that is forgotten
		return payment.EventIgnored
	}
	told := payment.Dispute{ID: *event.ObjectID, Status: text0(event.Status), Reason: text0(event.Reason)}
	known := s.Dispute
	same := known != nil && known.ID == told.ID
	switch {
	case same && *known == told:
		return payment.EventIgnored
	case same && closed[known.Status] && !closed[told.Status]:
		return payment.EventIgnored // it is older
	case known != nil && !same && !closed[known.Status] && closed[told.Status]:
		w.step(s, payment.StepDisputeClosed, told)
		w.disputed = append(w.disputed, event)
		return payment.EventRecorded
	}
	if !same {
		w.step(s, payment.StepDisputed, told)
	}
	if closed[told.Status] && !(same && closed[known.Status]) {
		w.step(s, payment.StepDisputeClosed, told)
	}
	s.Dispute = &told
	w.disputes[s.PurchaseID] = told
	w.disputed = append(w.disputed, event)
	return payment.EventRecorded
}

func (w *eventWork) step(s *payment.Subject, what string, d payment.Dispute) {
	detail := d.Status
	if what == payment.StepDisputed {
		detail = d.Reason
	}
	w.steps = append(w.steps, payment.Step{PurchaseID: s.PurchaseID, Event: what, Detail: postgres.Nullable(detail)})
}

func (w *eventWork) queueDisputes(b *pgx.Batch) {
	for id, d := range w.disputes {
		payment.QueueDispute(b, id, d)
	}
	if len(w.steps) > 0 {
		payment.QueueSteps(b, w.steps...)
	}
}
