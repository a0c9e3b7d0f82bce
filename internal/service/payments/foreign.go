package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/platform/stripe"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// refundField is in the metadata of the refunds that we make, see package refunds.
const refundField = "refund_id"

// noteForeign notes the refunds of our payments that somebody else has made at the
// provider: in a table, in the timeline of the purchase, in a metric, and in the log. They
// change nothing else. Where our own refund is still open, its runner takes one of the
// whole amount for it.
func (e *Events) noteForeign(ctx context.Context, tx pgx.Tx, work *eventWork, events []payment.Event) error {
	found := make(map[string]refund.Foreign)
	for _, event := range events {
		if f, ok := work.foreignOf(event); ok {
			found[f.ProviderID] = f
			if work.outcomes[event.ID] == payment.EventIgnored {
				work.outcomes[event.ID] = payment.EventRecorded
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	var all []refund.Foreign
	var purchases []uuid.UUID
	for _, f := range found {
		all, purchases = append(all, f), append(purchases, f.PurchaseID)
	}
	fresh, err := refund.NoteForeign(ctx, tx, all)
	if err != nil || len(fresh) == 0 {
		return err
	}
	ours, err := refund.OfPurchases(ctx, tx, purchases)
	if err != nil {
		return err
	}
	slices.Sort(fresh)
	for _, id := range fresh {
		f := found[id]
		detail := fmt.Sprintf("%s over %d %s was made at the provider, and not by us", f.ProviderID, f.Amount, f.Currency)
		work.steps = append(work.steps, payment.Step{PurchaseID: f.PurchaseID, Event: payment.StepElsewhere, Detail: &detail})
		known := "none"
		if _, ok := ours[f.PurchaseID]; ok {
			known = "known"
		}
		e.metrics.others.WithLabelValues(known).Inc()
		e.logger.Error("a payment was refunded at the provider, and not by us", "purchase", f.PurchaseID, "refund", f.ProviderID, "amount", int64(f.Amount),
			"currency", f.Currency, "our_refund", known)
	}
	return nil
}

// foreignOf reads the refund that an event is about, if it is of a payment of ours whose
// money was captured, was not made by us, and gives money back.
func (w *eventWork) foreignOf(event payment.Event) (f refund.Foreign, ok bool) {
	id, status := text0(event.ObjectID), text0(event.Status)
	s := w.subjectOf(event)
	if types[event.Type] != aboutRefund || !strings.HasPrefix(id, "re_") || s == nil || text0(s.IntentID) != text0(event.IntentID) ||
		text0(s.IntentStatus) != string(stripe.Succeeded) || status == string(stripe.RefundFailed) || status == string(stripe.RefundCanceled) {
		return f, false
	}
	var wire struct {
		Data struct {
			Object struct {
				Amount   int64             `json:"amount"`
				Currency string            `json:"currency"`
				Metadata map[string]string `json:"metadata"`
			} `json:"object"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(event.Payload), &wire) != nil || wire.Data.Object.Metadata[refundField] != "" {
		return f, false
	}
	return refund.Foreign{ProviderID: id, PurchaseID: s.PurchaseID, Amount: money.Amount(wire.Data.Object.Amount),
		Currency: strings.ToUpper(wire.Data.Object.Currency), Status: status}, true
}
