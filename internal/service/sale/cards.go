package sale

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
)

// taking is what a transaction of cancellations writes about purchases whose payments are
// open. Their cancellations wait for the ends of the payments. It is empty, and costs
// nothing, without them.
type taking struct {
	givenUp   []payment.Taking // before their capture
	captured  []payment.Taking
	begun     []uuid.UUID // cancellation jobs
	purchases []uuid.UUID // of these jobs
	jobs      []uuid.UUID // of the purchases that are given up
}

// take takes back a purchase that is being paid: before the capture its payment is given
// up, from then on what was captured is refunded when the payment is concluded.
func (r *returns) take(c *cancellation) {
	p, t := c.payment, &r.taking
	p.CancelJob = &c.ID // for further cancellations of it
	taken := payment.Taking{PurchaseID: p.PurchaseID, JobID: c.ID, By: c.By, Reason: c.Reason}
	if p.Phase.BeforeCapture() {
		t.givenUp, t.jobs = append(t.givenUp, taken), append(t.jobs, p.JobID)
		r.report.Payments = append(r.report.Payments, payment.Ref{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, JobID: p.JobID, Version: p.Version + 1})
	} else {
		t.captured = append(t.captured, taken)
	}
	t.begun, t.purchases = append(t.begun, c.ID), append(t.purchases, p.PurchaseID)
}

// queuePayments gives payments up, or notes what becomes of them.
func (t *taking) queuePayments(b *pgx.Batch) {
	queueSome(b, t.givenUp, payment.QueueGiveUp)
	queueSome(b, t.captured, payment.QueueTakeCaptured)
}

// queuePurchases notes that purchases do not wait for their buyers any more.
func (t *taking) queuePurchases(b *pgx.Batch) {
	given := make([]uuid.UUID, len(t.givenUp))
	for i, taken := range t.givenUp {
		given[i] = taken.PurchaseID
	}
	queueSome(b, given, purchase.QueueNotAwaiting)
}

// queueBegun notes which cancellations wait for the end of a payment. It locks the jobs
// that are finalized with them, so that all are locked in one order.
func (t *taking) queueBegun(b *pgx.Batch, finalized []job.Outcome) {
	if len(t.begun) == 0 {
		return
	}
	job.QueueLock(b, append(jobsOf(finalized, t.begun), t.jobs...))
	job.QueueBegun(b, t.begun, t.purchases)
	queueSome(b, t.jobs, job.QueueNotAwaiting)
}

// refundOf makes a refund of a purchase by card.
func refundOf(p *purchase.Purchase, amount money.Amount, reason refund.Reason) refund.Refund {
	return refund.Refund{ID: uuidv7.New(), PurchaseID: p.ID, CampaignID: p.CampaignID, UserID: p.UserID, Method: refund.Method(p.PaymentMethod),
		Amount: amount, Currency: p.Currency, Reason: reason}
}

// refundSteps returns the steps that say that card refunds were asked for.
func refundSteps(refunds []refund.Refund) (steps []payment.Step) {
	for _, r := range refunds {
		if r.Method == refund.Card {
			why := string(r.Reason)
			steps = append(steps, payment.Step{PurchaseID: r.PurchaseID, Event: payment.StepRefundOpen, Detail: &why})
		}
	}
	return steps
}

func queueSteps(b *pgx.Batch, steps []payment.Step) { payment.QueueSteps(b, steps...) }

// queueSome queues a statement for items, if there are any.
func queueSome[T any](b *pgx.Batch, items []T, queue func(*pgx.Batch, []T)) {
	if len(items) > 0 {
		queue(b, items)
	}
}
