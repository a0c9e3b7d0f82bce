package payments

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// refundField is in the metadata of the refunds that we make, see package refunds.
const refundField = "refund_id"

// What we know of a purchase whose money was given back by others, as the metric says it.
const (
	refundNone    = "none"    // it is kept here: the books differ
	refundKnown   = "known"   // it is given back here, too
	refundSettled = "settled" // its refund was settled by hand: it was paid back twice
)

// foreign is what a batch of events tells of a refund that is not ours, or that is ours
// and was settled by hand.
type foreign struct {
	refund.Foreign
	ourID  string // of our refund, if it is one that we have made
	made   bool   // an event tells that it gives money back
	events []string
	known  string // what we know of the purchase: none, known or settled
}

// noteForeign notes the refunds of our payments that somebody else has made at the
// provider: in a table and in the timeline of the purchase. They change nothing else. Where
// our own refund is still open, its runner takes one of the whole amount for it.
//
// A bank can send the money back even later: then the timeline says that, too.
func (e *Events) noteForeign(ctx context.Context, tx pgx.Tx, work *eventWork, events []payment.Event) error {
	found := work.foreignOf(events)
	if len(found) == 0 {
		return nil
	}
	var purchases []uuid.UUID
	for _, f := range found {
		purchases = append(purchases, f.PurchaseID)
	}
	ours, err := refund.OfPurchases(ctx, tx, purchases)
	if err != nil {
		return err
	}
	var all []refund.Foreign
	for _, f := range found {
		r, ok := ours[f.PurchaseID]
		switch {
		case !ok:
			f.known = refundNone
		case r.State == refund.Settled:
			f.known = refundSettled
		default:
			f.known = refundKnown
		}
		if f.ourID == "" || f.known == refundSettled && f.ourID == r.ID.String() {
			all = append(all, f.Foreign)
			work.recorded(f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	noted, err := refund.NoteForeign(ctx, tx, all)
	if err != nil {
		return err
	}
	for _, one := range noted {
		f := found[one.ProviderID]
		amount := money.Currency(f.Currency).Format(f.Amount)
		if one.Fresh && f.made {
			how := "and not by us"
			if f.ourID != "" {
				how = "although it was settled by hand"
			}
			work.stepElsewhere(f, payment.StepElsewhere, "%s of %s was made at the provider, %s", f.ProviderID, amount, how)
			work.foreignMade = append(work.foreignMade, *f)
		}
		if failedThere(f.Status) && (!one.Fresh || f.made) {
			work.stepElsewhere(f, payment.StepForeignFailed, "%s of %s is %s at the provider: that money was not given back", f.ProviderID, amount, f.Status)
			work.foreignFailed = append(work.foreignFailed, *f)
		}
	}
	return nil
}

// recorded notes that the events of a refund have done something.
func (w *eventWork) recorded(f *foreign) {
	for _, id := range f.events {
		if w.outcomes[id] == payment.EventIgnored {
			w.outcomes[id] = payment.EventRecorded
		}
	}
}

// failedThere reports whether a refund is over at the provider, and has given nothing back.
func failedThere(status string) bool {
	return status == string(payprovider.RefundFailed) || status == string(payprovider.RefundCanceled)
}

func (w *eventWork) stepElsewhere(f *foreign, what, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	w.steps = append(w.steps, payment.Step{PurchaseID: f.PurchaseID, Event: what, Detail: &detail})
}

// sayForeign counts and logs what a batch has noted, after its commit.
func (e *Events) sayForeign(w *eventWork) {
	for _, f := range w.foreignMade {
		e.metrics.others.WithLabelValues(f.known).Inc()
		e.logger.Error("a payment was refunded at the provider, and not by us, or beside what was settled by hand", "purchase", f.PurchaseID, "refund", f.ProviderID, "amount", int64(f.Amount),
			"currency", f.Currency, "our_refund", f.known)
	}
	for _, f := range w.foreignFailed {
		e.logger.Warn("a refund that is not ours has failed at the provider", "purchase", f.PurchaseID, "refund", f.ProviderID, "status", f.Status)
	}
}

// foreignOf reads the refunds that are not ours from events, by the provider's id. Events
// come in any order, so one that has failed stays so.
func (w *eventWork) foreignOf(events []payment.Event) map[string]*foreign {
	found := make(map[string]*foreign)
	for _, event := range events {
		told, ourID, ok := w.readForeign(event)
		if !ok {
			continue
		}
		f := found[told.ProviderID]
		if f == nil {
			f = &foreign{Foreign: told, ourID: ourID}
			found[told.ProviderID] = f
		}
		f.events = append(f.events, event.ID)
		if !failedThere(f.Status) {
			f.Status = told.Status
		}
		f.made = f.made || !failedThere(told.Status)
	}
	return found
}

// readForeign reads the refund that an event is about, if it is of a payment of ours whose
// money was captured, with the id of our own refund if we have made it.
func (w *eventWork) readForeign(event payment.Event) (f refund.Foreign, ourID string, ok bool) {
	s := w.subjectOf(event)
	if w.about(event) != payprovider.AboutRefund || s == nil || text0(s.IntentID) != text0(event.IntentID) || text0(s.IntentStatus) != string(payprovider.Succeeded) {
		return f, "", false
	}
	told, ok := w.reader.RefundIn([]byte(event.Payload))
	if !ok {
		return f, "", false
	}
	return refund.Foreign{ProviderID: told.ID, PurchaseID: s.PurchaseID, Amount: told.Amount, Currency: told.Currency, Status: text0(event.Status)}, told.Metadata[refundField], true
}
