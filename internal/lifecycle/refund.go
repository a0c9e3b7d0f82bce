package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// chunk is what a transaction has refunded.
type chunk struct {
	found int          // purchases, with those that were left for later
	last  uuid.UUID    // the last of them
	cards []lease.Item // new refunds
	refusals

	by, reason string // of the campaign's cancellation
	payees     *wallet.Buyers
	purchases  []*purchase.Purchase
}

// refund refunds the next purchases, those after the given one.
func (c *Canceller) refund(ctx context.Context, ref job.Ref, after uuid.UUID) (g chunk, err error) {
	err = postgres.InTx(ctx, c.db, func(tx pgx.Tx) error {
		g = chunk{}
		if err := campaign.Lock(ctx, tx, ref.CampaignID); err != nil {
			return err
		}
		if err := g.find(ctx, tx, ref, after); err != nil || len(g.purchases) == 0 {
			return err
		}
		if err := g.write(ctx, tx, ref); err != nil {
			return err
		}
		now, _, err := progress(ctx, tx, ref.CampaignID)
		if err != nil {
			return err
		}
		if err := advance(ctx, tx, ref, &job.Progress{Refunds: now}); err != nil {
			return err
		}
		hit("lifecycle.chunk", ref)
		return nil
	})
	if err != nil {
		return chunk{}, fmt.Errorf("lifecycle.refund(%s): %w", ref.CampaignID, err)
	}
	if len(g.purchases) > 0 {
		hit("lifecycle.chunked", ref)
	}
	return g, nil
}

// find reads purchases under the campaign's lock, and decides which are refunded now.
func (g *chunk) find(ctx context.Context, tx pgx.Tx, ref job.Ref, after uuid.UUID) error {
	c, err := campaign.Get(ctx, tx, ref.CampaignID)
	if err != nil {
		return err
	}
	if c.State != campaign.Cancelled || c.CancelledBy == nil {
		return fmt.Errorf("campaign %s is not cancelled, but job %s has begun to refund its purchases", ref.CampaignID, ref.ID)
	}
	g.by = *c.CancelledBy
	if c.CancelReason != nil {
		g.reason = *c.CancelReason
	}
	ids, err := inventory.Buyers(ctx, tx, ref.CampaignID, after, chunkSize)
	if err != nil || len(ids) == 0 {
		return err
	}
	g.found, g.last = len(ids), ids[len(ids)-1]
	bought := make(map[uuid.UUID]*purchase.Purchase, len(ids))
	var reads pgx.Batch
	purchase.QueueGet(&reads, ids, bought)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return err
	}
	var want []wallet.PayBack
	for _, p := range bought {
		if p.PaymentMethod == purchase.Wallet {
			want = append(want, payBackOf(p, g.by))
		}
	}
	if g.payees, err = wallet.OpenPayees(ctx, tx, want, postgres.SkipLocked); err != nil { // it waits for none
		return err
	}
	for _, id := range ids {
		p := bought[id]
		if p == nil || p.State != purchase.Completed {
			return fmt.Errorf("positions are sold to purchase %s, which is not completed", id)
		}
		switch later := g.payBack(p); {
		case errors.Is(later, wallet.ErrBusy): // soon
			continue
		case later != nil:
			g.add(refusals{1, id, later})
			continue
		}
		g.purchases = append(g.purchases, p)
	}
	return nil
}

func payBackOf(p *purchase.Purchase, by string) wallet.PayBack {
	return wallet.PayBack{PurchaseID: p.ID, Owner: wallet.Owner{Client: p.Client, ID: p.UserID, Currency: p.Currency}, Amount: purchase.PriceOf(p.Items), By: by}
}

// payBack credits the wallet that paid a purchase, if one did. An error means that the
// wallet cannot take the money now.
func (g *chunk) payBack(p *purchase.Purchase) error {
	if p.PaymentMethod != purchase.Wallet {
		return nil
	}
	back := payBackOf(p, g.by)
	if g.payees.Busy(back.Owner) {
		return wallet.ErrBusy
	}
	return g.payees.PayBack(back)
}

// write writes everything, in one round trip and in the order of locks. Each statement
// fails when it does not change exactly its rows.
func (g *chunk) write(ctx context.Context, tx pgx.Tx, ref job.Ref) error {
	var refunds []payment.Refund
	sold, owned := 0, make([]inventory.Allocation, 0, len(g.purchases))
	var ends []purchase.End
	var steps []payment.Step
	for _, p := range g.purchases {
		back := payment.Refund{ID: uuidv7.New(), PurchaseID: p.ID, CampaignID: p.CampaignID, UserID: p.UserID,
			Method: payment.RefundMethod(p.PaymentMethod), Amount: purchase.PriceOf(p.Items), Currency: p.Currency, Reason: payment.RefundCampaignCancelled}
		refunds = append(refunds, back)
		owned, sold = append(owned, inventory.Allocation{CampaignID: p.CampaignID, PurchaseID: p.ID, Items: p.Items}), sold+len(p.Items)
		end := purchase.End{ID: p.ID, State: purchase.Cancelled, By: g.by, Reason: g.reason}
		if p.PaymentMethod == purchase.Card {
			end.State = purchase.Refunding
			g.cards = append(g.cards, back.Item())
			steps = append(steps, payment.Step{PurchaseID: p.ID, Event: payment.StepRefundOpen})
		}
		ends = append(ends, end)
	}
	var b pgx.Batch
	payment.QueueInsertRefunds(&b, refunds)
	campaign.Changes{ref.CampaignID: {Sold: -sold}}.QueueBack(&b)
	inventory.QueueChange(&b, owned, inventory.Sold, inventory.Available)
	purchase.QueueEnd(&b, ends, purchase.Completed)
	if len(steps) > 0 {
		payment.QueueSteps(&b, steps...)
	}
	g.payees.Queue(&b)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "lifecycle.write")
}
