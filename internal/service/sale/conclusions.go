package sale

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
)

// conclusions is what a transaction writes about payments, and the report that is valid
// after its commit.
type conclusions struct {
	changes    campaign.Changes
	payments   []payment.Conclusion
	steps      []payment.Step
	refunds    []refund.Refund
	freed      []inventory.Return
	heldAgain  []inventory.HeldAgain
	unpaid     []inventory.Unpaid // whose positions are freed, too
	sold       []inventory.Return // that were reserved
	resold     []inventory.Sale   // that were free: for late money
	completed  []uuid.UUID
	reassigned []purchase.Purchase
	ends       []purchase.End // of open purchases
	lateEnds   []purchase.End // of purchases that had ended before
	report     Report
}

func newConclusions(busy []job.Ref) *conclusions {
	return &conclusions{changes: make(campaign.Changes), report: Report{Busy: busy}}
}

// decide decides about one payment. late means that its money came when its positions were
// free again, and that the campaign wants others for it: see reassign.
func (o *conclusions) decide(c *conclusion) (late bool, err error) {
	switch {
	case c.Phase == payment.Captured && !c.open():
		return false, o.returnAgain(c)
	case c.Phase == payment.Captured && c.takenBack():
		return false, o.giveBack(c, refund.PurchaseCancelled)
	case c.Phase == payment.Captured && c.campaign.State == campaign.Cancelled:
		return false, o.giveBack(c, refund.CampaignCancelled)
	case c.Phase == payment.Captured && c.kept:
		return false, o.sell(c)
	case c.Phase == payment.Captured && c.campaign.State == campaign.Active && !c.campaign.Ended && c.campaign.LatePayment == campaign.LatePaymentReassign:
		return true, nil
	case c.Phase == payment.Captured:
		return false, o.giveBack(c, refund.LatePayment)
	case c.Phase == payment.Ended && c.open():
		return false, o.end(c)
	case c.Phase == payment.Ended:
		o.to(c, payment.Cancelled)
	case c.Phase == payment.Expiring && c.Uncancellable && c.Over && c.open() && c.takenBack():
		return false, o.end(c) // nobody waits for it: money that it still brings goes back
	case c.Phase == payment.Expiring && c.Uncancellable && c.Over && c.open():
		o.release(c)
		o.to(c, payment.Late)
		o.report.Payments = append(o.report.Payments, payment.Ref{PurchaseID: c.PurchaseID, CampaignID: c.CampaignID, JobID: c.JobID, Version: c.Version + 1})
	}
	return false, nil
}

// to moves the payment to its next phase.
func (o *conclusions) to(c *conclusion, phase payment.Phase) {
	o.payments = append(o.payments, payment.Conclusion{PurchaseID: c.PurchaseID, Version: c.Version, From: c.Phase, To: phase})
}

func (o *conclusions) step(c *conclusion, event string) {
	o.steps = append(o.steps, payment.Step{PurchaseID: c.PurchaseID, Event: event})
}

// release frees the positions of a purchase that is not paid, if it still has them. Its
// user has kept them for a while.
func (o *conclusions) release(c *conclusion) {
	if c.kept {
		o.unpaid = append(o.unpaid, c.unpaid())
	}
	o.free(c)
}

// holdAgain gives the positions of a purchase back to the hold that it has used.
func (o *conclusions) holdAgain(c *conclusion) {
	o.heldAgain = append(o.heldAgain, inventory.HeldAgain{HoldID: c.hold, PurchaseID: c.PurchaseID, Size: len(c.bought.Items)})
	o.changes.Add(c.CampaignID, campaign.Change{})
	o.step(c, payment.StepHeldAgain)
}

// free frees the positions of a purchase, if it still has them.
func (o *conclusions) free(c *conclusion) {
	if !c.kept {
		return
	}
	o.freed = append(o.freed, c.positions()...)
	o.changes.Add(c.CampaignID, campaign.Change{Reserved: -len(c.bought.Items)})
	o.step(c, payment.StepReleased)
}

// sell sells the positions that are reserved for a purchase.
func (o *conclusions) sell(c *conclusion) error {
	n := len(c.bought.Items)
	o.sold = append(o.sold, c.positions()...)
	o.changes.Add(c.CampaignID, campaign.Change{Reserved: -n, Sold: n})
	return o.complete(c)
}

// complete ends a purchase whose positions are sold.
func (o *conclusions) complete(c *conclusion) error {
	p := c.bought
	answer, err := json.Marshal(Result{PurchaseID: p.ID, Positions: p.Items, Amount: p.Amount, Currency: p.Currency, Board: c.campaign.Board + 1})
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", c.JobID, err)
	}
	o.completed = append(o.completed, p.ID)
	o.report.Finalized = append(o.report.Finalized, job.Outcome{ID: c.JobID, Result: answer, PurchaseID: p.ID, Positions: purchase.Words(p.Items)})
	o.report.Sold += len(p.Items)
	o.to(c, payment.Settled)
	return nil
}

// giveBack refunds money that the purchase cannot keep, and ends the purchase.
func (o *conclusions) giveBack(c *conclusion, reason refund.Reason) error {
	if reason == refund.LatePayment {
		o.step(c, payment.StepLate)
	}
	o.free(c)
	end := purchase.End{ID: c.PurchaseID, State: purchase.Refunding}
	var problem *fault.Error
	switch reason {
	case refund.PurchaseCancelled:
		problem = fault.New(fault.PurchaseCancelled, "the purchase was cancelled while it was paid; the money is given back")
		end.By, end.Reason = c.takenBy()
	case refund.CampaignCancelled:
		problem = fault.New(fault.CampaignNotActive, "the campaign was cancelled while the purchase was paid; the money is given back")
	default:
		problem = fault.New(fault.ReservationExpired, "the payment came after the reservation had ended; the money is given back")
	}
	if end.By == "" {
		end.Failure = &problem.Code
	}
	o.ends = append(o.ends, end)
	o.refund(c, reason)
	o.to(c, payment.RefundDue)
	return o.finalize(c, purchase.Refunding, problem)
}

// returnAgain refunds money that appeared on a purchase that had ended: it failed, or was
// cancelled before it was paid.
func (o *conclusions) returnAgain(c *conclusion) error {
	switch state := c.bought.State; state {
	case purchase.Failed, purchase.Cancelled:
		reason := refund.LatePayment
		if state == purchase.Cancelled {
			reason = refund.PurchaseCancelled
		} else if *c.bought.Failure == fault.CampaignNotActive {
			reason = refund.CampaignCancelled
		}
		o.step(c, payment.StepLate)
		o.lateEnds = append(o.lateEnds, purchase.End{ID: c.PurchaseID, State: purchase.Refunding})
		o.refund(c, reason)
	case purchase.Refunding, purchase.Refunded: // it has its refund
	default:
		return fmt.Errorf("%w: purchase %s is %s, and its payment is captured", postgres.ErrRows, c.PurchaseID, state)
	}
	o.to(c, payment.RefundDue)
	return nil
}

// refund makes the one refund of a purchase.
func (o *conclusions) refund(c *conclusion, reason refund.Reason) {
	made := refundOf(c.bought, c.bought.Amount, reason)
	o.refunds = append(o.refunds, made)
	o.report.Refunds = append(o.report.Refunds, made.Item())
}

// end ends a purchase that is not paid.
func (o *conclusions) end(c *conclusion) error {
	o.to(c, payment.Cancelled)
	problem := c.whyEnded()
	if c.hold == uuid.Nil {
		o.release(c)
	} else {
		o.holdAgain(c)
		problem.About = fault.About{Kind: fault.AboutHold, ID: c.hold.String()}
	}
	if c.takenBack() {
		by, reason := c.takenBy()
		o.ends = append(o.ends, purchase.End{ID: c.PurchaseID, State: purchase.Cancelled, By: by, Reason: reason})
		return o.finalize(c, purchase.Cancelled, problem)
	}
	o.ends = append(o.ends, purchase.End{ID: c.PurchaseID, State: purchase.Failed, Failure: &problem.Code})
	return o.finalize(c, purchase.Failed, problem)
}

// takenBy returns who cancelled the purchase, and why.
func (c *conclusion) takenBy() (by, reason string) {
	by = job.System
	if c.CancelledBy != nil {
		by = *c.CancelledBy
	}
	if c.CancelReason != nil {
		reason = *c.CancelReason
	}
	return by, reason
}

// whyEnded returns why the job of an unpaid purchase fails.
func (c *conclusion) whyEnded() *fault.Error {
	if c.takenBack() {
		return fault.New(fault.PurchaseCancelled, "the purchase was cancelled before it was paid; the positions are free again")
	}
	switch *c.Ending { // the table has one in this phase
	case payment.Declined:
		return declined(c.Decline)
	case payment.Refused:
		why := declined(c.Decline)
		why.Code, why.DeclineCode, why.Advice = fault.PaymentRefused, "", ""
		return why
	case payment.Unpaid:
		return fault.New(fault.PaymentNotReceived, "the payment was never received, as an operator has found; the reservation has ended")
	case payment.CampaignCancelled:
		return fault.New(fault.CampaignNotActive, "the campaign was cancelled before the purchase was paid")
	default:
		return fault.New(fault.ReservationExpired, "the payment did not arrive in time; the reservation has ended")
	}
}

// declined says why a provider did not take the money, in the provider's words.
func declined(d *payprovider.Decline) *fault.Error {
	why := fault.New(fault.PaymentDeclined, "the payment did not succeed; another try is a new request with a new key")
	if d == nil {
		return why
	}
	if d.Message != "" {
		why.Message = d.Message
	}
	why.DeclineCode, why.Advice = d.DeclineCode, d.Advice
	if why.DeclineCode == "" { // the provider has codes that say it all, such as expired_card
		why.DeclineCode = d.Code
	}
	return why
}

// finalize finalizes the job of a purchase that ends without its positions, and the
// cancellation that waits for that.
func (o *conclusions) finalize(c *conclusion, state purchase.State, problem error) error {
	refused := job.Refused(c.JobID, problem)
	refused.PurchaseID = c.PurchaseID
	o.report.Finalized = append(o.report.Finalized, refused)
	if c.CancelJob == nil {
		return nil
	}
	p, board := c.bought, c.campaign.Board
	if c.kept { // they are freed now
		board++
	}
	answer, err := json.Marshal(Cancelled{PurchaseID: p.ID, State: state, Positions: p.Items, Amount: p.Amount, Currency: p.Currency, Board: board})
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", *c.CancelJob, err)
	}
	o.report.Finalized = append(o.report.Finalized, job.Outcome{ID: *c.CancelJob, Result: answer, PurchaseID: p.ID})
	return nil
}

// leaveFinal leaves jobs alone that are final already. A payment that goes on has no
// such job; if it had one, its money would go the same way.
func (o *conclusions) leaveFinal(ctx context.Context, tx pgx.Tx) error {
	ids := make([]uuid.UUID, len(o.report.Finalized))
	for i, outcome := range o.report.Finalized {
		ids[i] = outcome.ID
	}
	final, err := job.FindFinal(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, id := range final {
		o.report.Broken = append(o.report.Broken, fmt.Errorf("job %s was final before its payment", id))
	}
	o.report.Finalized = slices.DeleteFunc(o.report.Finalized, func(outcome job.Outcome) bool { return slices.Contains(final, outcome.ID) })
	return nil
}

// write writes everything, in one round trip and in the order of locks. Each statement
// fails when it does not change exactly its rows.
func (o *conclusions) write(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	o.changes.QueueBack(&b)
	queueSome(&b, o.payments, payment.QueueConclude)
	queueSome(&b, append(o.steps, refundSteps(o.refunds)...), queueSteps)
	queueSome(&b, o.refunds, refund.QueueInsert)
	queueSome(&b, o.freed, inventory.QueueFreeReserved)
	queueSome(&b, o.heldAgain, inventory.QueueHoldAgain)
	queueSome(&b, o.unpaid, inventory.QueueUnpaid)
	queueSome(&b, o.sold, inventory.QueueSellReserved)
	queueSome(&b, o.resold, inventory.QueueSell)
	queueSome(&b, o.completed, purchase.QueueComplete)
	queueSome(&b, o.reassigned, purchase.QueueReassign)
	queueSome(&b, o.ends, purchase.QueueEndOpen)
	queueSome(&b, o.lateEnds, purchase.QueueRefundingLate)
	queueSome(&b, o.report.Finalized, job.QueueFinalize)
	if b.Len() == 0 {
		return nil
	}
	return fault.At(tx.SendBatch(ctx, &b).Close(), "write")
}
