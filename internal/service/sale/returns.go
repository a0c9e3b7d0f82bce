package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
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
		err = r.payees.PayBack(payBackOf(c.bought))
	}
	switch {
	case err == nil:
		return r.cancel(c)
	case errors.Is(err, wallet.ErrBroken): // it could never succeed
		r.report.Broken = append(r.report.Broken, err)
	case !isRefusal(err):
		return err
	}
	r.report.Finalized = append(r.report.Finalized, job.Refused(c.ID, err))
	return nil
}

func (r *returns) cancel(c *cancellation) error {
	p := c.bought
	p.State = purchase.Cancelled // for further cancellations of it
	if p.PaymentMethod == purchase.Card {
		p.State = purchase.Refunding
	}
	answer, err := json.Marshal(Cancelled{PurchaseID: p.ID, State: p.State, Positions: p.Items, Amount: p.Amount, Currency: p.Currency, Board: c.board + 1})
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", c.ID, err)
	}
	r.report.Finalized = append(r.report.Finalized, job.Outcome{ID: c.ID, Result: answer})
	if p.PaymentMethod == purchase.Card {
		made := refundOf(p, refund.PurchaseCancelled)
		r.refunds, r.report.Refunds = append(r.refunds, made), append(r.report.Refunds, made.Item())
		r.cards = append(r.cards, purchase.End{ID: p.ID, State: p.State, By: c.By, Reason: c.Reason})
	} else {
		r.purchases, r.by, r.reasons = append(r.purchases, p.ID), append(r.by, c.By), append(r.reasons, c.Reason)
	}
	for _, item := range p.Items {
		r.positions = append(r.positions, inventory.Return{CampaignID: p.CampaignID, PurchaseID: p.ID, Position: item.Position})
	}
	if r.changes == nil {
		r.changes = make(campaign.Changes)
	}
	r.changes.Add(p.CampaignID, campaign.Change{Sold: -len(p.Items)})
	return nil
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
