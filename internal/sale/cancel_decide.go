package sale

import (
	"errors"
	"slices"
	"time"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// decideOne decides one cancellation, which sees what those before it have done. Its error
// stops the batch; a refusal is a decision.
func (e *effects) decideOne(c *cancellation) error {
	err := c.check()
	if (fault.CodeOf(err) == fault.PurchaseDisputed || c.Disputed) && c.busy() {
		err = nil // it was read without its lock
	}
	byWallet := err == nil && c.bought.PaymentMethod == purchase.Wallet
	switch {
	case byWallet && e.wallets.Busy(ownerOf(c.bought)), err == nil && c.busy():
		e.Busy = append(e.Busy, c.Ref)
		return nil
	case err == nil && c.open():
		if err = c.checkPayment(); err == nil {
			e.cancelPayment(c)
			return nil
		}
	case byWallet:
		err = e.wallets.PayBack(c.payBack())
	}
	switch {
	case err == nil:
		return e.cancel(c)
	case errors.Is(err, wallet.ErrBroken), fault.CodeOf(err) != fault.InternalError: // a cancellation on a broken wallet could never succeed
		e.fail(c.ID, c.PurchaseID, err)
		return nil
	}
	return err
}

// cancelPayment cancels a purchase that is being paid: before the capture its payment is cancelled;
// after it the money is refunded when the payment is settled. The cancellation waits for the end of
// the payment.
func (e *effects) cancelPayment(c *cancellation) {
	p := c.payment
	p.CancelJob = &c.ID // for further cancellations of it
	taken := payment.Cancellation{PurchaseID: p.PurchaseID, JobID: c.ID, By: c.By, Reason: c.Reason}
	if p.Phase.BeforeCapture() {
		e.cancelledPayments = append(e.cancelledPayments, taken)
		e.notAwaiting = append(e.notAwaiting, p.PurchaseID)
		e.Due = append(e.Due, payment.Ref{PurchaseID: p.PurchaseID, Version: p.Version + 1}.Item())
	} else {
		e.captured = append(e.captured, taken)
	}
	e.waiting, e.waitingFor = append(e.waiting, c.ID), append(e.waitingFor, p.PurchaseID)
}

func (e *effects) cancel(c *cancellation) error {
	p, done := c.bought, resultOf(c.bought, c.board+1)
	done.Positions, done.Amount = c.items(), purchase.PriceOf(c.items())
	if c.partial() {
		e.cancelPart(c, done.Positions, done.Amount)
	} else {
		p.State = purchase.Cancelled // for further cancellations of it
		if p.PaymentMethod == purchase.Card && !c.Disputed {
			p.State = purchase.Refunding
		}
		e.cancelled = append(e.cancelled, purchase.End{ID: p.ID, State: p.State, By: c.By, Reason: c.Reason})
	}
	if !c.Disputed {
		e.refund(p, done.Amount, payment.RefundPurchaseCancelled)
	}
	e.freedSold = append(e.freedSold, inventory.Allocation{CampaignID: p.CampaignID, PurchaseID: p.ID, Items: done.Positions})
	e.changes.Add(p.CampaignID, campaign.Counts{Sold: -len(done.Positions)})
	done.State = p.State
	return e.succeed(c.ID, done)
}

// cancelPart leaves a purchase what is not cancelled, for further cancellations of it, too.
func (e *effects) cancelPart(c *cancellation, items []purchase.Item, amount money.Amount) {
	p, part := c.bought, purchase.PartialCancellation{JobID: c.ID, By: c.By, Reason: c.Reason, Items: items, Amount: amount}
	p.Items = slices.DeleteFunc(slices.Clone(p.Items), func(i purchase.Item) bool { return slices.Contains(c.Positions, i.Position) })
	p.Partial = append(p.Partial, part)
	e.parts[p.ID] = append(e.parts[p.ID], part)
}

func ownerOf(p *purchase.Purchase) wallet.Owner {
	return wallet.Owner{Client: p.Client, ID: p.UserID, Currency: p.Currency}
}

func (c *cancellation) payBack() wallet.PayBack {
	back := wallet.PayBack{PurchaseID: c.bought.ID, Owner: ownerOf(c.bought), Amount: purchase.PriceOf(c.items()), By: c.By}
	if c.partial() {
		back.Part = c.ID
	}
	return back
}

// buyer returns the user of the purchase; empty: there is none.
func (c *cancellation) buyer() string {
	if c.bought == nil {
		return ""
	}
	return c.bought.UserID
}

// items returns what is cancelled: the positions that were named, or all that are left.
func (c *cancellation) items() []purchase.Item {
	if len(c.Positions) == 0 {
		return c.bought.Items
	}
	return slices.DeleteFunc(slices.Clone(c.bought.Items), func(i purchase.Item) bool { return !slices.Contains(c.Positions, i.Position) })
}

func (c *cancellation) partial() bool {
	return len(c.Positions) > 0 && len(c.items()) < len(c.bought.Items)
}

// checkPositions returns why the named positions cannot be cancelled: all of them, or none.
func (c *cancellation) checkPositions() error {
	has := func(items []purchase.Item, at shape.Position) int {
		return slices.IndexFunc(items, func(i purchase.Item) bool { return i.Position == at })
	}
	for _, at := range c.Positions {
		if has(c.bought.Items, at) >= 0 {
			continue
		}
		for _, part := range c.bought.Partial {
			if n := has(part.Items, at); n >= 0 {
				return fault.New(fault.StateConflict, "position %s of the purchase is cancelled already", part.Items[n].Name())
			}
		}
		return fault.New(fault.StateConflict, "the purchase has no position %d/%d", at.Layer, at.Column)
	}
	if c.bought.State != purchase.Completed && c.partial() {
		return fault.New(fault.StateConflict, "the purchase is %s: single positions can be cancelled only after it is paid; until then cancel the whole purchase", c.bought.State)
	}
	return nil
}

func (c *cancellation) check() error {
	switch {
	case c.campaign == nil:
		return campaign.NotFound(c.CampaignID)
	case c.bought == nil:
		return fault.New(fault.NotFound, "there is no purchase %s", c.PurchaseID)
	case c.bought.State == purchase.Cancelled:
		return fault.New(fault.StateConflict, "the purchase is cancelled already")
	case c.bought.State == purchase.Refunding, c.bought.State == purchase.Refunded:
		return fault.New(fault.StateConflict, "the purchase is %s already", c.bought.State)
	case c.bought.State != purchase.Completed && !c.open():
		return fault.New(fault.StateConflict, "the purchase is %s; only a completed purchase, or one that is being paid, can be cancelled", c.bought.State)
	case *c.campaign == campaign.Drawing, *c.campaign == campaign.Completed:
		return fault.New(fault.StateConflict, "the campaign is %s: its sale has ended, and the list of buyers is final", *c.campaign)
	case *c.campaign != campaign.Active:
		return fault.New(fault.StateConflict, "the campaign is %s; purchases can be cancelled while it is active", *c.campaign)
	case c.Disputed && !c.unpaid:
		return fault.New(fault.StateConflict, "the dispute of the purchase has not taken back all that was paid")
	case c.payment != nil && c.payment.Dispute.HoldsMoney() && !c.AnyTime:
		d := c.payment.Dispute
		return fault.New(fault.PurchaseDisputed, "the buyer has disputed the charge (%s, %s) and the bank decides about the money; an operator can still cancel the purchase", d.ID, d.Status)
	case !c.open() && c.late && !c.AnyTime:
		return fault.New(fault.StateConflict, "purchases of this campaign could be cancelled until %s; an operator still can", c.until.UTC().Format(time.RFC3339))
	}
	return c.checkPositions()
}

// open reports whether the purchase is being paid.
func (c *cancellation) open() bool { return c.payment != nil && c.bought.State.Open() }

// busy reports whether another transaction has the payment, so that nothing can be decided.
func (c *cancellation) busy() bool { return c.payment != nil && !c.locked }

// checkPayment returns why the purchase cannot be cancelled while it is paid, or nil. It
// needs the lock of the payment.
func (c *cancellation) checkPayment() error {
	switch p := c.payment; {
	case p.CancelJob != nil:
		return fault.New(fault.StateConflict, "the purchase is being cancelled already")
	case !p.Phase.BeforeCapture() && p.Phase != payment.Capturing && p.Phase != payment.Captured:
		return fault.New(fault.StateConflict, "the payment of the purchase is already being cancelled")
	}
	return nil
}
