package sale

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

// firstLook is when a payment whose first task was lost is due again.
const firstLook = 5 * time.Second

// reserving is what a sale writes for orders that are paid by card: their positions are
// reserved, and their payments and jobs go on after its commit. It is empty, and costs
// nothing, in a sale without them.
type reserving struct {
	Reservations
	now       time.Time
	positions []inventory.Sale
	payments  []payment.New
	jobs      []uuid.UUID
	purchases []uuid.UUID
}

// reserve notes the effects of an order that is paid by card. The positions of a hold
// are counted as reserved already.
func (e *effects) reserve(o *order) {
	p, holdID := o.bought, o.Selection.HoldID
	e.purchases = append(e.purchases, p)
	r := &e.reserving
	r.positions = append(r.positions, inventory.Sale{PurchaseID: p.ID, UserID: p.UserID, HoldID: holdID, For: o.keeps, Picked: o.picked})
	pay := payment.New{Reserved: o.keeps, HeldSince: o.since, Payment: payment.Payment{PurchaseID: p.ID, JobID: p.JobID, CampaignID: p.CampaignID,
		Amount: p.Amount, Currency: p.Currency, PaymentMethod: o.Payment.PaymentMethod}}
	if url := o.Payment.ReturnURL; url != "" {
		pay.ReturnURL = &url
	}
	r.payments = append(r.payments, pay)
	r.jobs, r.purchases = append(r.jobs, p.JobID), append(r.purchases, p.ID)
	e.report.Payments = append(e.report.Payments, pay.Ref())
	change := campaign.Change{Reserved: len(o.picked)}
	if holdID != uuid.Nil {
		change.Reserved = 0
		e.report.HoldsUsed++
	}
	e.changes.Add(p.CampaignID, change)
}

// queue writes payments and positions. It comes after campaign.Changes.
func (r *reserving) queue(b *pgx.Batch) {
	if len(r.payments) == 0 {
		return
	}
	payment.QueueInsert(b, r.payments, r.MaxExtension, r.AfterSaleEnd, firstLook)
	steps := make([]payment.Step, len(r.payments))
	for i, p := range r.payments {
		steps[i] = payment.Step{PurchaseID: p.PurchaseID, Event: payment.StepReserved}
	}
	payment.QueueSteps(b, steps...)
	inventory.QueueReserve(b, r.positions, r.now, r.Turns, r.MaxExtension)
}

// queueBegun notes which jobs have begun a purchase. It locks the jobs that are finalized
// with them, so that all are locked in one order.
func (r *reserving) queueBegun(b *pgx.Batch, finalized []job.Outcome) {
	if len(r.jobs) == 0 {
		return
	}
	job.QueueLock(b, jobsOf(finalized, r.jobs))
	job.QueueBegun(b, r.jobs, r.purchases)
}

// jobsOf returns the jobs of outcomes, and more.
func jobsOf(outcomes []job.Outcome, more []uuid.UUID) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(outcomes)+len(more))
	for _, o := range outcomes {
		ids = append(ids, o.ID)
	}
	return append(ids, more...)
}
