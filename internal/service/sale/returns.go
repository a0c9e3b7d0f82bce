package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
	"triprize/internal/store/wallet"
)

// returns is what a transaction of cancellations writes, and the report that is valid
// after its commit.
type returns struct {
	changes   campaign.Changes
	positions []inventory.Return
	parts     map[uuid.UUID][]purchase.PartialCancellation
	purchases []uuid.UUID // paid external or by wallet
	by        []string
	reasons   []string
	payees    *wallet.Payees
	cards     []purchase.End // of purchases that are paid by card
	refunds   []refund.Refund
	taking    taking
	report    Report
}

// decide decides one cancellation, which sees what those before it have done. Its error
// stops the batch; a refusal is a decision.
func (r *returns) decide(c *cancellation) error {
	err := c.check()
	if fault.CodeOf(err) == fault.PurchaseDisputed && c.busy() {
		err = nil // it was read without its lock
	}
	byWallet := err == nil && c.bought.PaymentMethod == purchase.Wallet
	if byWallet && r.payees.Busy(ownerOf(c.bought)) || err == nil && c.busy() {
		r.report.Busy = append(r.report.Busy, c.Ref)
		return nil
	}
	if err == nil && c.payment != nil {
		if err = c.checkPayment(); err == nil {
			r.take(c)
			return nil
		}
	}
	if err == nil && byWallet {
		err = r.payees.PayBack(c.payBack())
	}
	switch {
	case err == nil:
		return r.cancel(c)
	case errors.Is(err, wallet.ErrBroken): // it could never succeed
		r.report.Broken = append(r.report.Broken, err)
	case !isRefusal(err):
		return err
	}
	refused := job.Refused(c.ID, err)
	refused.PurchaseID = c.PurchaseID
	r.report.Finalized = append(r.report.Finalized, refused)
	return nil
}

func (r *returns) cancel(c *cancellation) error {
	p, items := c.bought, c.items()
	amount, byCard := purchase.PriceOf(items), p.PaymentMethod == purchase.Card
	switch {
	case c.partial():
		r.keepRest(c, items, amount)
	case byCard:
		p.State = purchase.Refunding // for further cancellations of it
		r.cards = append(r.cards, purchase.End{ID: p.ID, State: p.State, By: c.By, Reason: c.Reason})
	default:
		p.State = purchase.Cancelled
		r.purchases, r.by, r.reasons = append(r.purchases, p.ID), append(r.by, c.By), append(r.reasons, c.Reason)
	}
	answer, err := json.Marshal(Cancelled{PurchaseID: p.ID, State: p.State, Positions: items, Amount: amount, Currency: p.Currency, Board: c.board + 1})
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", c.ID, err)
	}
	r.report.Finalized = append(r.report.Finalized, job.Outcome{ID: c.ID, Result: answer, PurchaseID: p.ID})
	made := refundOf(p, amount, refund.PurchaseCancelled)
	r.refunds = append(r.refunds, made)
	if byCard {
		r.report.Refunds = append(r.report.Refunds, made.Item())
	}
	for _, item := range items {
		r.positions = append(r.positions, inventory.Return{CampaignID: p.CampaignID, PurchaseID: p.ID, Position: item.Position})
	}
	if r.changes == nil {
		r.changes = make(campaign.Changes)
	}
	r.changes.Add(p.CampaignID, campaign.Change{Sold: -len(items)})
	return nil
}

// keepRest leaves a purchase what is not cancelled, for further cancellations of it, too.
func (r *returns) keepRest(c *cancellation, items []purchase.Item, amount money.Amount) {
	p, part := c.bought, purchase.PartialCancellation{JobID: c.ID, By: c.By, Reason: c.Reason, Items: items, Amount: amount}
	p.Items = slices.DeleteFunc(slices.Clone(p.Items), func(i purchase.Item) bool { return slices.Contains(c.Positions, i.Position) })
	p.Partial = append(p.Partial, part)
	if r.parts == nil {
		r.parts = make(map[uuid.UUID][]purchase.PartialCancellation)
	}
	r.parts[p.ID] = append(r.parts[p.ID], part)
}

// write cancels the purchases, frees their positions, refunds the money and finalizes the
// jobs, in one round trip and in the order of locks. Each statement fails when it does
// not change exactly its rows.
func (r *returns) write(ctx context.Context, tx pgx.Tx) error {
	if len(r.report.Finalized) == 0 && len(r.taking.begun) == 0 {
		return nil
	}
	var b pgx.Batch
	r.changes.Queue(&b)
	r.taking.queuePayments(&b)
	queueSome(&b, refundSteps(r.refunds), queueSteps)
	queueSome(&b, r.refunds, refund.QueueInsert)
	queueSome(&b, r.positions, inventory.QueueTakeBack)
	if len(r.parts) > 0 {
		if err := purchase.QueueCancelPart(&b, r.parts); err != nil {
			return err
		}
	}
	if len(r.purchases) > 0 {
		purchase.QueueCancel(&b, r.purchases, r.by, r.reasons)
	}
	queueSome(&b, r.cards, purchase.QueueRefunding)
	r.taking.queuePurchases(&b)
	r.payees.Queue(&b)
	r.taking.queueBegun(&b, r.report.Finalized)
	queueSome(&b, r.report.Finalized, job.QueueFinalize)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "write")
}
