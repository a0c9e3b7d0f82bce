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

// Our knowledge of a purchase whose money was given back by others, as the metric says it.
const (
	refundNone     = "none"     // it is kept here: the books differ
	refundKnown    = "known"    // it is given back here, too
	refundResolved = "resolved" // its refund was resolved by hand: it was paid back twice
)

// outOfBand is what a batch of events tells of a refund that is not ours, or that is ours
// and was resolved by hand.
type outOfBand struct {
	refund.OutOfBand
	ourID  string // of our refund, if it is one that we have made
	made   bool   // an event tells that it gives money back
	events []string
	known  string // what we know of the purchase: none, known or resolved
}

// noteOutOfBand notes the refunds of our payments that somebody else has made at the
// provider: in a table and in the timeline of the purchase. They change nothing else. Where
// our own refund is still open, its runner takes one of the whole amount for it.
//
// A bank can send the money back even later: then the timeline says that, too.
func (e *Events) noteOutOfBand(ctx context.Context, tx pgx.Tx, work *eventWork, events []payment.Event) error {
	found := work.outOfBandOf(events)
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
	var all []refund.OutOfBand
	for _, f := range found {
		r, ok := ours[f.PurchaseID]
		switch {
		case !ok:
			f.known = refundNone
		case r.State == refund.Resolved:
			f.known = refundResolved
		default:
			f.known = refundKnown
		}
		if f.ourID == "" || f.known == refundResolved && f.ourID == r.ID.String() {
			all = append(all, f.OutOfBand)
			work.recorded(f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	noted, err := refund.NoteOutOfBand(ctx, tx, all)
	if err != nil {
		return err
	}
	for _, one := range noted {
		f := found[one.ProviderID]
		amount := money.Currency(f.Currency).Format(f.Amount)
		if one.Fresh && f.made {
			how := "and not by us"
			if f.ourID != "" {
				how = "although it was resolved by hand"
			}
			work.stepOutOfBand(f, payment.StepOutOfBand, "%s of %s was made at the provider, %s", f.ProviderID, amount, how)
			work.outOfBandMade = append(work.outOfBandMade, *f)
		}
		if failedThere(f.Status) && (!one.Fresh || f.made) {
			work.stepOutOfBand(f, payment.StepOutOfBandFailed, "%s of %s is %s at the provider: that money was not given back", f.ProviderID, amount, f.Status)
			work.outOfBandFailed = append(work.outOfBandFailed, *f)
		}
	}
	return nil
}

// recorded notes that the events of a refund have done something.
func (w *eventWork) recorded(f *outOfBand) {
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

func (w *eventWork) stepOutOfBand(f *outOfBand, what, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	w.steps = append(w.steps, payment.Step{PurchaseID: f.PurchaseID, Event: what, Detail: &detail})
}

// sayOutOfBand counts and logs what a batch has noted, after its commit.
func (e *Events) sayOutOfBand(w *eventWork) {
	for _, f := range w.outOfBandMade {
		e.metrics.others.WithLabelValues(f.known).Inc()
		e.logger.Error("a payment was refunded at the provider, and not by us, or beside what was resolved by hand", "purchase", f.PurchaseID, "refund", f.ProviderID, "amount", int64(f.Amount),
			"currency", f.Currency, "our_refund", f.known)
	}
	for _, f := range w.outOfBandFailed {
		e.logger.Warn("a refund that is not ours has failed at the provider", "purchase", f.PurchaseID, "refund", f.ProviderID, "status", f.Status)
	}
}

// outOfBandOf reads the refunds that are not ours from events, by the provider's id. Events
// come in any order, so one that has failed stays so.
func (w *eventWork) outOfBandOf(events []payment.Event) map[string]*outOfBand {
	found := make(map[string]*outOfBand)
	for _, event := range events {
		told, ourID, ok := w.readOutOfBand(event)
		if !ok {
			continue
		}
		f := found[told.ProviderID]
		if f == nil {
			f = &outOfBand{OutOfBand: told, ourID: ourID}
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

// readOutOfBand reads the refund that an event is about, if it is of a payment of ours whose
// money was captured, with the id of our own refund if we have made it.
func (w *eventWork) readOutOfBand(event payment.Event) (f refund.OutOfBand, ourID string, ok bool) {
	s := w.subjectOf(event)
	if w.about(event) != payprovider.AboutRefund || s == nil || text0(s.IntentID) != text0(event.IntentID) || text0(s.IntentStatus) != string(payprovider.Succeeded) {
		return f, "", false
	}
	told, ok := w.reader.RefundIn([]byte(event.Payload))
	if !ok {
		return f, "", false
	}
	return refund.OutOfBand{ProviderID: told.ID, PurchaseID: s.PurchaseID, Amount: told.Amount, Currency: told.Currency, Status: text0(event.Status)}, told.Metadata[refundField], true
}
