package resource

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// PurchaseDetails are what other tables have of purchases, by purchase.
type PurchaseDetails struct {
	payments map[uuid.UUID]*payment.Payment
	refunds  map[uuid.UUID][]payment.Refund
	steps    map[uuid.UUID][]payment.Step
}

// ReadPurchaseDetails reads what there is beside purchases: nothing, for those that are paid and
// kept, and not by card.
func ReadPurchaseDetails(ctx context.Context, db postgres.DB, list ...purchase.Purchase) (PurchaseDetails, error) {
	d := PurchaseDetails{payments: make(map[uuid.UUID]*payment.Payment), steps: make(map[uuid.UUID][]payment.Step)}
	var cards, eventful []uuid.UUID
	for _, p := range list {
		if p.PaymentMethod == purchase.Card {
			cards = append(cards, p.ID)
		}
		if p.PaymentMethod == purchase.Card || p.State != purchase.Completed || len(p.Partial) > 0 {
			eventful = append(eventful, p.ID)
		}
	}
	if len(eventful) == 0 {
		return d, nil
	}
	var b pgx.Batch
	payment.QueueGet(&b, cards, d.payments)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return d, err
	}
	steps, err := payment.StepsOf(ctx, db, eventful)
	if err != nil {
		return d, err
	}
	for _, step := range steps {
		d.steps[step.PurchaseID] = append(d.steps[step.PurchaseID], step)
	}
	d.refunds, err = payment.RefundsOfPurchases(ctx, db, eventful)
	return d, err
}

// Purchase is a purchase, for a caller in the role of who.
func (details PurchaseDetails) Purchase(p purchase.Purchase, who Role) contract.Purchase {
	d := contract.Purchase{ID: p.ID, CampaignID: p.CampaignID, UserID: p.UserID, JobID: p.ID, State: contract.PurchaseState(p.State),
		Amount: int64(p.Amount), Currency: p.Currency, Positions: positionsJSON(p.Items),
		Payment:  contract.Payment{Method: contract.PaymentMethod(p.PaymentMethod), Reference: p.PaymentReference},
		Timeline: timelineJSON(p, details.steps[p.ID], who), Metadata: metadataFor(p.Metadata, who)}
	if !p.Erased {
		d.Nonce = new(hex.EncodeToString(p.Nonce[:]))
	}
	if p.Failure != nil {
		d.Failure = new(string(*p.Failure))
	}
	if c := p.Cancellation; c != nil {
		d.Cancellation = &contract.Cancellation{At: c.At, By: roleFor(c.By, who), Reason: c.Reason}
	}
	d.PartialCancellations = make([]contract.PartialCancellation, len(p.Partial))
	for i, part := range p.Partial {
		d.PartialCancellations[i] = partJSON(part, who)
	}
	if paid := details.payments[p.ID]; paid != nil {
		d.Payment, d.AmountDisputed = Payment(*paid), int64(paid.Disputed)
		if paid.Dispute != nil && paid.DisputedAt != nil {
			d.Dispute = disputeJSON(*paid, who)
		}
	}
	d.Refunds = make([]contract.Refund, len(details.refunds[p.ID]))
	for i, back := range details.refunds[p.ID] {
		d.Refunds[i] = Refund(back, who)
		if back.State.Finished() {
			d.AmountRefunded += int64(back.Amount)
		}
	}
	if paid := details.payments[p.ID]; paid != nil {
		d.AmountRefunded -= int64(paid.Overlap)
	}
	return d
}

// disputeJSON shows users not what the provider takes for it. An event without a currency is about that of the payment.
func disputeJSON(p payment.Payment, who Role) *contract.Dispute {
	of := p.Dispute
	d := &contract.Dispute{ID: of.ID, Status: of.Status, Reason: of.Reason, Amount: int64(of.Amount), Currency: cmp.Or(of.Currency, p.Currency), At: *cmp.Or(of.OpenedAt, p.DisputedAt), ClosedAt: of.ClosedAt}
	if fee := int64(of.Fee); who != User && of.FeeCurrency != "" {
		d.Fee, d.FeeCurrency = &fee, &of.FeeCurrency
	}
	return d
}

func positionJSON(p shape.Seat, price money.Amount) contract.PricedPosition {
	return contract.PricedPosition{Layer: p.Layer, Column: p.Column, Number: p.Number, Label: p.Label, Price: int64(price)}
}

func positionsJSON(items []purchase.Item) []contract.PricedPosition {
	positions := make([]contract.PricedPosition, len(items))
	for i, item := range items {
		positions[i] = positionJSON(item.Seat, item.Price)
	}
	return positions
}

// Payment is a payment by card, as its purchase shows it.
func Payment(p payment.Payment) contract.Payment {
	d := contract.Payment{Method: contract.PaymentMethod(purchase.Card), Reference: p.IntentID, PaymentMethod: &p.PaymentMethod, Livemode: p.Livemode, Decline: decline(p.Decline)}
	if p.Phase.BeforeCapture() {
		d.ExpiresAt = new(p.OverAt())
	}
	return d
}

func decline(why *payprovider.Decline) *contract.Decline {
	if why == nil {
		return nil
	}
	return &contract.Decline{Code: why.Code, DeclineCode: why.DeclineCode, Advice: why.Advice, Message: why.Message}
}

// timelineJSON is what has happened to a purchase, the oldest first. Details are not for
// users: they name clients and what has gone wrong at the provider.
func timelineJSON(p purchase.Purchase, steps []payment.Step, who Role) []contract.TimelineEntry {
	var timeline []contract.TimelineEntry
	for _, step := range steps {
		entry := contract.TimelineEntry{At: step.At, Event: contract.TimelineEntryEvent(step.Event)}
		if step.Detail != nil && who != User {
			entry.Detail = *step.Detail
		}
		timeline = append(timeline, entry)
	}
	if p.CompletedAt != nil {
		timeline = append(timeline, contract.TimelineEntry{At: *p.CompletedAt, Event: contract.TimelineEntryEventCompleted})
	}
	for _, part := range p.Partial {
		timeline = append(timeline, contract.TimelineEntry{At: part.At, Event: contract.TimelineEntryEventPartiallyCancelled})
	}
	if p.Cancellation != nil {
		timeline = append(timeline, contract.TimelineEntry{At: p.Cancellation.At, Event: contract.TimelineEntryEventCancelled})
	}
	slices.SortStableFunc(timeline, func(a, b contract.TimelineEntry) int { return a.At.Compare(b.At) })
	first := contract.TimelineEntry{At: p.CreatedAt, Event: contract.TimelineEntryEventCreated}
	if len(timeline) > 0 && timeline[0].At.Before(first.At) { // written in the same transaction, a moment before the purchase
		first.At = timeline[0].At
	}
	return slices.Insert(timeline, 0, first)
}

func partJSON(part purchase.PartialCancellation, who Role) contract.PartialCancellation {
	d := contract.PartialCancellation{JobID: part.JobID, At: part.At, By: roleFor(part.By, who), Amount: int64(part.Amount), Positions: positionsJSON(part.Items)}
	if part.Reason != "" {
		d.Reason = &part.Reason
	}
	return d
}

// roleFor shows users only the role of the one that did something, not the name of the client.
func roleFor(by string, who Role) string {
	if who == User {
		by, _, _ = strings.Cut(by, ":")
	}
	return by
}

// Refund shows users not the provider's text.
func Refund(r payment.Refund, who Role) contract.Refund {
	d := contract.Refund{ID: r.ID, PurchaseID: r.PurchaseID, CampaignID: r.CampaignID, UserID: r.UserID, Method: contract.RefundMethod(r.Method),
		Amount: int64(r.Due), Currency: r.Currency, Reason: contract.RefundReason(r.Reason), State: contract.RefundState(r.State),
		Reference: r.ProviderID, Failure: r.Failure, CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt}
	if who == User {
		d.Failure = nil
	}
	if r.ForOperator() {
		d.WaitingFor = new(string(Operator))
	}
	if r.ResolvedBy != nil && r.ResolveReason != nil { // the table allows both or neither
		d.Resolution = &contract.RefundResolution{By: roleFor(*r.ResolvedBy, who), Reason: *r.ResolveReason, Amount: int64(r.Amount)}
	}
	return d
}

// Hold is a hold, for those who may see its user.
func Hold(h inventory.Hold, who Role) contract.Hold {
	d := contract.Hold{ID: h.ID, CampaignID: h.CampaignID, UserID: h.UserID, State: contract.HoldState(h.State), ExpiresAt: h.ExpiresAt,
		Extensions: h.Extensions, Currency: h.Currency, PurchaseID: h.PurchaseID, CreatedAt: h.CreatedAt, EndedAt: h.EndedAt, Metadata: metadataFor(h.Metadata, who),
		Positions: make([]contract.PricedPosition, len(h.Positions))}
	for i, p := range h.Positions {
		d.Positions[i] = positionJSON(p.Seat, p.Price)
		d.Amount += int64(p.Price)
	}
	return d
}
