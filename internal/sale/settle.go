package sale

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// decide decides about one payment. Money that came when its positions were free again is refunded.
func (e *effects) decide(c *finalization) error {
	switch {
	case c.Phase == payment.Captured && !c.open():
		return e.refundLate(c)
	case c.Phase == payment.Captured && c.cancelled():
		return e.endWithRefund(c, payment.RefundPurchaseCancelled)
	case c.Phase == payment.Captured && c.campaign.State == campaign.Cancelled:
		return e.endWithRefund(c, payment.RefundCampaignCancelled)
	case c.Phase == payment.Captured && c.reserved:
		return e.sellReserved(c)
	case c.Phase == payment.Captured:
		return e.endWithRefund(c, payment.RefundLatePayment)
	case c.Phase == payment.Ended && c.open():
		return e.end(c)
	case c.Phase == payment.Ended:
		e.setPhase(c, payment.Cancelled)
	case c.Phase == payment.Expiring && c.Uncancellable && c.Over && c.open():
		return e.setLate(c)
	}
	return nil
}

// setLate frees positions that are not paid in time. What its buyer has cancelled ends at once.
func (e *effects) setLate(c *finalization) error {
	if c.cancelled() {
		return e.end(c)
	}
	e.release(c)
	e.setPhase(c, payment.Late)
	e.Payments = append(e.Payments, payment.Ref{PurchaseID: c.PurchaseID, CampaignID: c.CampaignID, JobID: c.JobID, Version: c.Version + 1})
	return nil
}

func (e *effects) setPhase(c *finalization, phase payment.Phase) {
	e.finalized = append(e.finalized, payment.Finalization{PurchaseID: c.PurchaseID, Version: c.Version, From: c.Phase, To: phase})
}

func (e *effects) step(c *finalization, event string) {
	e.steps = append(e.steps, payment.Step{PurchaseID: c.PurchaseID, Event: event})
}

// release frees the positions of an unpaid purchase, if it still has them, and adds to the held
// times of its user.
func (e *effects) release(c *finalization) {
	if c.reserved {
		e.unpaid = append(e.unpaid, c.owned())
	}
	e.free(c)
}

func (e *effects) restoreHold(c *finalization) {
	e.restoredHolds = append(e.restoredHolds, c.owned())
	e.changes.Add(c.CampaignID, campaign.Counts{})
	e.step(c, payment.StepHeldAgain)
}

// free frees the positions of a purchase, if it still has them.
func (e *effects) free(c *finalization) {
	if !c.reserved {
		return
	}
	e.freed = append(e.freed, c.owned())
	e.changes.Add(c.CampaignID, campaign.Counts{Reserved: -len(c.bought.Items)})
	e.step(c, payment.StepReleased)
}

func (e *effects) sellReserved(c *finalization) error {
	n := len(c.bought.Items)
	e.paid = append(e.paid, c.owned())
	e.changes.Add(c.CampaignID, campaign.Counts{Reserved: -n, Sold: n})
	return e.complete(c)
}

func (e *effects) complete(c *finalization) error {
	e.completed = append(e.completed, c.PurchaseID)
	e.setPhase(c, payment.Settled)
	return e.succeed(c.JobID, resultOf(c.bought, c.campaign.Board+1))
}

func (e *effects) endWithRefund(c *finalization, reason payment.RefundReason) error {
	if reason == payment.RefundLatePayment {
		e.step(c, payment.StepLate)
	}
	e.free(c)
	end := purchase.End{ID: c.PurchaseID, State: purchase.Refunding}
	var problem *fault.Error
	switch reason {
	case payment.RefundPurchaseCancelled:
		problem = fault.New(fault.PurchaseCancelled, "the purchase was cancelled while it was being paid; the money is refunded")
		end.By, end.Reason = c.cancelledBy()
	case payment.RefundCampaignCancelled:
		problem = fault.New(fault.CampaignNotActive, "the campaign was cancelled while the purchase was being paid; the money is refunded")
	default:
		problem = fault.New(fault.ReservationExpired, "the payment arrived after the reservation had ended; the money is refunded")
	}
	if end.By == "" {
		end.Failure = &problem.Code
	}
	e.ends = append(e.ends, end)
	e.refund(c.bought, c.bought.Amount, reason)
	e.setPhase(c, payment.RefundDue)
	return e.finalize(c, purchase.Refunding, problem)
}

// refundLate refunds money that appeared on a purchase that had ended: it failed, or was
// cancelled before it was paid.
func (e *effects) refundLate(c *finalization) error {
	switch state := c.bought.State; state {
	case purchase.Failed, purchase.Cancelled:
		reason := payment.RefundLatePayment
		if state == purchase.Cancelled {
			reason = payment.RefundPurchaseCancelled
		} else if *c.bought.Failure == fault.CampaignNotActive {
			reason = payment.RefundCampaignCancelled
		}
		e.step(c, payment.StepLate)
		e.lateEnds = append(e.lateEnds, purchase.End{ID: c.PurchaseID, State: purchase.Refunding})
		e.refund(c.bought, c.bought.Amount, reason)
	case purchase.Refunding, purchase.Refunded: // it has its refund
	default:
		return fmt.Errorf("%w: purchase %s is %s, and its payment is captured", postgres.ErrRows, c.PurchaseID, state)
	}
	e.setPhase(c, payment.RefundDue)
	return nil
}

func (e *effects) end(c *finalization) error {
	e.setPhase(c, payment.Cancelled)
	problem := c.whyEnded()
	if c.hold == uuid.Nil {
		e.release(c)
	} else {
		e.restoreHold(c)
		problem.About = fault.About{Kind: fault.AboutHold, ID: c.hold.String()}
	}
	if c.cancelled() {
		by, reason := c.cancelledBy()
		e.ends = append(e.ends, purchase.End{ID: c.PurchaseID, State: purchase.Cancelled, By: by, Reason: reason})
		return e.finalize(c, purchase.Cancelled, problem)
	}
	e.ends = append(e.ends, purchase.End{ID: c.PurchaseID, State: purchase.Failed, Failure: &problem.Code})
	return e.finalize(c, purchase.Failed, problem)
}

func (c *finalization) cancelledBy() (by, reason string) {
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
func (c *finalization) whyEnded() *fault.Error {
	if c.cancelled() {
		return fault.New(fault.PurchaseCancelled, "the purchase was cancelled before it was paid; the positions are released")
	}
	switch *c.Ending { // the table has one in this phase
	case payment.Declined:
		return declined(c.Decline)
	case payment.Refused:
		why := declined(c.Decline)
		why.Code, why.DeclineCode, why.Advice = fault.PaymentRefused, "", ""
		return why
	case payment.Unpaid:
		return fault.New(fault.PaymentNotReceived, "an operator found that the payment was never received; the reservation has ended")
	case payment.CampaignCancelled:
		return fault.New(fault.CampaignNotActive, "the campaign was cancelled before the purchase was paid")
	default:
		return fault.New(fault.ReservationExpired, "the payment did not arrive in time; the reservation has ended")
	}
}

// declined returns why the provider did not take the money, in its words.
func declined(d *payprovider.Decline) *fault.Error {
	why := fault.New(fault.PaymentDeclined, "the payment did not succeed; retry with a new request and a fresh key")
	if d == nil {
		return why
	}
	if d.Message != "" {
		why.Message = d.Message
	}
	why.DeclineCode, why.Advice = d.DeclineCode, d.Advice
	if why.DeclineCode == "" { // some codes of the provider need no decline code, such as expired_card
		why.DeclineCode = d.Code
	}
	return why
}

// finalize finalizes the job of a purchase that ends without its positions, and the
// cancellation that waits for that.
func (e *effects) finalize(c *finalization, state purchase.State, problem error) error {
	e.fail(c.JobID, c.PurchaseID, problem)
	if c.CancelJob == nil {
		return nil
	}
	done := resultOf(c.bought, c.campaign.Board)
	if done.State = state; c.reserved { // they are freed now
		done.Board++
	}
	return e.succeed(*c.CancelJob, done)
}

// dropFinal drops the outcomes of jobs that are final already. An open payment has no such
// job; if it had one, its money would go the same way.
func (e *effects) dropFinal(ctx context.Context, tx pgx.Tx) error {
	ids := make([]uuid.UUID, len(e.Finalized))
	for i, outcome := range e.Finalized {
		ids[i] = outcome.ID
	}
	final, err := job.FindFinal(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, id := range final {
		e.Broken = append(e.Broken, fmt.Errorf("job %s was final before its payment", id))
	}
	e.Finalized = slices.DeleteFunc(e.Finalized, func(outcome job.Outcome) bool { return slices.Contains(final, outcome.ID) })
	return nil
}
