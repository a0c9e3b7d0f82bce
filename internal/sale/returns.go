package sale

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// decideOne decides one cancellation, which sees what those before it have done. Its error
// stops the batch; a refusal is a decision.
func (e *effects) decideOne(c *cancellation) error {
	err := c.check()
	if fault.CodeOf(err) == fault.PurchaseDisputed && c.busy() {
		err = nil // it was read without its lock
	}
	byWallet := err == nil && c.bought.PaymentMethod == purchase.Wallet
	switch {
	case byWallet && e.wallets.Busy(ownerOf(c.bought)), err == nil && c.busy():
		e.Busy = append(e.Busy, c.Ref)
		return nil
	case err == nil && c.open():
		if err = c.checkPayment(); err == nil {
			e.takeBack(c)
			return nil
		}
	case byWallet:
		err = e.wallets.PayBack(c.payBack())
	}
	switch {
	case err == nil:
		return e.cancel(c)
	case !errors.Is(err, wallet.ErrBroken) && !isRefusal(err): // a cancellation on a broken wallet could never succeed
		return err
	}
	e.fail(c.ID, c.PurchaseID, err)
	return nil
}

// takeBack takes back a purchase that is being paid: before the capture its payment is given
// up, from then on what was captured is refunded when the payment is concluded. The cancellation
// waits for the end of the payment.
func (e *effects) takeBack(c *cancellation) {
	p := c.payment
	p.CancelJob = &c.ID // for further cancellations of it
	taken := payment.Taking{PurchaseID: p.PurchaseID, JobID: c.ID, By: c.By, Reason: c.Reason}
	if p.Phase.BeforeCapture() {
		e.givenUp, e.notAwaiting = append(e.givenUp, taken), append(e.notAwaiting, p.JobID)
		e.Payments = append(e.Payments, payment.Ref{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, JobID: p.JobID, Version: p.Version + 1})
	} else {
		e.captured = append(e.captured, taken)
	}
	e.waiting, e.waitingFor = append(e.waiting, c.ID), append(e.waitingFor, p.PurchaseID)
}

func (e *effects) cancel(c *cancellation) error {
	p, done := c.bought, resultOf(c.bought, c.board+1)
	done.Positions, done.Amount = c.items(), purchase.PriceOf(c.items())
	if c.partial() {
		e.keepRest(c, done.Positions, done.Amount)
	} else {
		p.State = purchase.Cancelled // for further cancellations of it
		if p.PaymentMethod == purchase.Card {
			p.State = purchase.Refunding
		}
		e.cancelled = append(e.cancelled, purchase.End{ID: p.ID, State: p.State, By: c.By, Reason: c.Reason})
	}
	e.refund(p, done.Amount, payment.RefundPurchaseCancelled)
	e.takenBack = append(e.takenBack, inventory.Owned{CampaignID: p.CampaignID, PurchaseID: p.ID, Items: done.Positions})
	e.changes.Add(p.CampaignID, campaign.Counts{Sold: -len(done.Positions)})
	done.State = p.State
	return e.succeed(c.ID, done)
}

// keepRest leaves a purchase what is not cancelled, for further cancellations of it, too.
func (e *effects) keepRest(c *cancellation, items []purchase.Item, amount money.Amount) {
	p, part := c.bought, purchase.PartialCancellation{JobID: c.ID, By: c.By, Reason: c.Reason, Items: items, Amount: amount}
	p.Items = slices.DeleteFunc(slices.Clone(p.Items), func(i purchase.Item) bool { return slices.Contains(c.Positions, i.Position) })
	p.Partial = append(p.Partial, part)
	e.parts[p.ID] = append(e.parts[p.ID], part)
}

func ownerOf(p *purchase.Purchase) wallet.Owner {
	return wallet.Owner{Client: p.Client, ID: p.UserID, Currency: p.Currency}
}

// payBack is what the cancellation gives back to the wallet that paid.
func (c *cancellation) payBack() wallet.PayBack {
	back := wallet.PayBack{PurchaseID: c.bought.ID, Owner: ownerOf(c.bought), Amount: purchase.PriceOf(c.items()), By: c.By}
	if c.partial() {
		back.Part = c.ID
	}
	return back
}

// lockPayees locks the wallets of purchases that may be cancelled and were paid by
// wallet. wait says whether to wait for those that another transaction has locked.
func (in *cancellations) lockPayees(ctx context.Context, tx pgx.Tx, wait Wait) error {
	var want []wallet.PayBack
	for _, c := range in.wanted {
		if c.check() == nil && c.bought.PaymentMethod == purchase.Wallet {
			want = append(want, c.payBack())
			if all := want[len(want)-1]; all.Part != uuid.Nil { // those before it may leave nothing else
				all.Part = uuid.Nil
				want = append(want, all)
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	mode, err := wait.forWallets(ctx, tx)
	if err == nil {
		in.wallets, err = wallet.OpenPayees(ctx, tx, want, mode)
	}
	return err
}
