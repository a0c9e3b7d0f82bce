package sale

import (
	"cmp"
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

// decision is what becomes of a payment whose end is known, and of its purchase. Positions that are
// reserved for it are sold when the purchase is completed; otherwise they are free, or held again.
type decision struct {
	payment  payment.Phase        // empty: it goes on
	purchase purchase.State       // empty: it stays
	refund   payment.RefundReason // empty: none
	problem  *fault.Error         // of the job, when the purchase ends
}

// decide is the table of decisions. Until the end of a payment is known, that of package cards decides.
func (c *settlement) decide() (decision, error) {
	switch {
	case c.Phase == payment.Captured && !c.open():
		return c.lateMoney()
	case c.Phase == payment.Captured && c.cancelled():
		return refunded(payment.RefundPurchaseCancelled, fault.PurchaseCancelled, "the purchase was cancelled while it was being paid; the money is refunded"), nil
	case c.Phase == payment.Captured && c.campaign.State == campaign.Cancelled:
		return refunded(payment.RefundCampaignCancelled, fault.CampaignNotActive, "the campaign was cancelled while the purchase was being paid; the money is refunded"), nil
	case c.Phase == payment.Captured && c.reserved:
		return decision{payment: payment.Settled, purchase: purchase.Completed}, nil
	case c.Phase == payment.Captured:
		return refunded(payment.RefundLatePayment, fault.ReservationExpired, "the payment arrived after the reservation had ended; the money is refunded"), nil
	case c.Phase == payment.Ended && c.open():
		return c.unpaid(), nil
	case c.Phase == payment.Ended:
		return decision{payment: payment.Cancelled}, nil
	case c.Phase == payment.Expiring && c.Uncancellable && c.Over && c.open():
		return c.overdue(), nil
	}
	return decision{}, nil
}

func refunded(reason payment.RefundReason, code fault.Code, text string) decision {
	return decision{payment.RefundDue, purchase.Refunding, reason, fault.New(code, "%s", text)}
}

// lateMoney refunds money that appeared on a purchase that had ended: it failed, or was cancelled before it
// was paid.
func (c *settlement) lateMoney() (decision, error) {
	s := decision{payment: payment.RefundDue, purchase: purchase.Refunding, refund: payment.RefundLatePayment}
	switch state := c.bought.State; {
	case state == purchase.Cancelled:
		s.refund = payment.RefundPurchaseCancelled
	case state == purchase.Failed && *c.bought.Failure == fault.CampaignNotActive:
		s.refund = payment.RefundCampaignCancelled
	case state == purchase.Refunding, state == purchase.Refunded: // it has its refund
		s.purchase, s.refund = "", ""
	case state != purchase.Failed:
		return s, fmt.Errorf("%w: purchase %s is %s, and its payment is captured", postgres.ErrRows, c.PurchaseID, state)
	}
	return s, nil
}

func (c *settlement) unpaid() decision {
	s := decision{payment: payment.Cancelled, purchase: purchase.Failed, problem: c.whyEnded()}
	if c.cancelled() {
		s.purchase = purchase.Cancelled
	}
	if c.hold != uuid.Nil {
		s.problem.About = fault.About{Kind: fault.AboutHold, ID: c.hold.String()}
	}
	return s
}

// overdue frees positions that are not paid in time. What its buyer has cancelled ends at once.
func (c *settlement) overdue() decision {
	if c.cancelled() {
		return c.unpaid()
	}
	return decision{payment: payment.Late}
}

func (e *effects) settle(c *settlement, s decision) error {
	if s.payment == "" {
		return nil
	}
	e.settled = append(e.settled, payment.Settlement{PurchaseID: c.PurchaseID, Version: c.Version, From: c.Phase, To: s.payment})
	if c.reserved && c.open() {
		e.settlePositions(c, s)
	}
	if s.refund != "" {
		if s.refund == payment.RefundLatePayment || !c.open() {
			e.step(c, payment.StepLate)
		}
		e.refund(c.bought, c.bought.Amount, s.refund)
	}
	switch {
	case s.payment == payment.Late:
		e.Due = append(e.Due, payment.Ref{PurchaseID: c.PurchaseID, Version: c.Version + 1}.Item())
	case s.purchase == purchase.Completed:
		e.completed = append(e.completed, c.PurchaseID)
		return e.succeed(c.PurchaseID, resultOf(c.bought, c.campaign.Board+1))
	case s.purchase != "" && c.open():
		return e.end(c, s)
	case s.purchase != "":
		e.lateEnds = append(e.lateEnds, purchase.End{ID: c.PurchaseID, State: s.purchase})
	}
	return nil
}

// settlePositions is for the positions that are reserved for a payment. Times of its user with positions that
// are neither bought nor held again count.
func (e *effects) settlePositions(c *settlement, s decision) {
	n, owned := len(c.bought.Items), c.owned()
	switch {
	case s.purchase == purchase.Completed:
		e.paid = append(e.paid, owned)
		e.changes.Add(c.CampaignID, campaign.Counts{Reserved: -n, Sold: n})
	case c.hold != uuid.Nil:
		e.restoredHolds = append(e.restoredHolds, owned)
		e.changes.Add(c.CampaignID, campaign.Counts{})
		e.step(c, payment.StepHeldAgain)
	default:
		if s.refund == "" {
			e.unpaid = append(e.unpaid, owned)
		}
		e.freed = append(e.freed, owned)
		e.changes.Add(c.CampaignID, campaign.Counts{Reserved: -n})
		e.step(c, payment.StepReleased)
	}
}

func (e *effects) step(c *settlement, event string) {
	e.steps = append(e.steps, payment.Step{PurchaseID: c.PurchaseID, Event: event})
}

// end ends an open purchase without its positions, its job, and the cancellation that waits for that.
func (e *effects) end(c *settlement, s decision) error {
	end := purchase.End{ID: c.PurchaseID, State: s.purchase, Failure: &s.problem.Code}
	if c.cancelled() {
		end.Failure, end.By, end.Reason = nil, cmp.Or(postgres.ValueOf(c.CancelledBy), job.System), postgres.ValueOf(c.CancelReason)
	}
	e.ends = append(e.ends, end)
	e.fail(c.PurchaseID, c.PurchaseID, s.problem)
	if c.CancelJob == nil {
		return nil
	}
	done := resultOf(c.bought, c.campaign.Board)
	if done.State = s.purchase; c.reserved { // they are freed now
		done.Board++
	}
	return e.succeed(*c.CancelJob, done)
}

// whyEnded returns why the job of an unpaid purchase fails.
func (c *settlement) whyEnded() *fault.Error {
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

// dropFinal drops the outcomes of jobs that are final already. An open payment has no such
// job; if it had one, its money would go the same way.
func (e *effects) dropFinal(ctx context.Context, tx pgx.Tx) error {
	ids := make([]uuid.UUID, len(e.Outcomes))
	for i, outcome := range e.Outcomes {
		ids[i] = outcome.ID
	}
	final, err := job.FindFinal(ctx, tx, ids)
	if err != nil {
		return err
	}
	for _, id := range final {
		e.Broken = append(e.Broken, fmt.Errorf("job %s was final before its payment", id))
	}
	e.Outcomes = slices.DeleteFunc(e.Outcomes, func(outcome job.Outcome) bool { return slices.Contains(final, outcome.ID) })
	return nil
}
