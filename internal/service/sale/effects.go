package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// effects is what a transaction writes, and the report that is valid after its commit.
type effects struct {
	changes   campaign.Changes
	sales     []inventory.Sale
	purchases []purchase.Purchase
	reserving reserving
	unit      *wallet.UnitOfWork // nil: no money moves
	report    Report
}

// effectsOf turns orders that were decided into effects.
func effectsOf(in *inputs, payers *payers, orders []*order) (*effects, error) {
	e := &effects{changes: make(campaign.Changes), unit: payers.unit, report: Report{Busy: in.busy, Locked: in.busy, HoldsReclaimed: len(in.over)}}
	e.reserving.Reservations, e.reserving.now = in.reservations, in.now
	for _, h := range in.over {
		e.changes.Add(h.CampaignID, campaign.Change{Reserved: -h.Size})
	}
	for _, o := range orders {
		switch {
		case o.putOff:
			e.report.Busy = append(e.report.Busy, o.ref())
		case o.refusal != nil:
			e.refuse(o)
		case o.bought.State == purchase.Pending:
			e.reserve(o)
		default:
			if err := e.sell(o, in.campaigns[o.campaignID].Board+1); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

func (e *effects) refuse(o *order) {
	e.report.Finalized = append(e.report.Finalized, job.Refused(o.jobID, o.refusal))
	if errors.Is(o.refusal, wallet.ErrBroken) {
		e.report.Broken = append(e.report.Broken, o.refusal)
	}
}

// sell sells what makes a board of a version.
func (e *effects) sell(o *order, board int64) error {
	p, n := o.bought, len(o.picked)
	answer, err := json.Marshal(Result{PurchaseID: p.ID, Positions: p.Items, Amount: p.Amount, Currency: p.Currency, Board: board})
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", p.JobID, err)
	}
	e.report.Finalized = append(e.report.Finalized, job.Outcome{ID: p.JobID, Result: answer, PurchaseID: p.ID, Positions: purchase.Words(p.Items)})
	e.report.Sold += n
	e.purchases = append(e.purchases, p)
	holdID := o.Selection.HoldID
	e.sales = append(e.sales, inventory.Sale{PurchaseID: p.ID, UserID: p.UserID, HoldID: holdID, Picked: o.picked})
	change := campaign.Change{Sold: n}
	if holdID != uuid.Nil {
		change.Reserved = -n
		e.report.HoldsUsed++
	}
	e.changes.Add(p.CampaignID, change)
	return nil
}

// write writes everything, in one round trip and in the order of locks. Each statement
// fails when it does not change exactly its rows.
func (e *effects) write(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	e.changes.Queue(&b)
	e.reserving.queue(&b)
	if len(e.sales) > 0 {
		inventory.QueueSell(&b, e.sales)
	}
	if len(e.purchases) > 0 {
		purchase.QueueInsert(&b, e.purchases)
	}
	if e.unit != nil {
		e.unit.Queue(&b)
	}
	e.reserving.queueBegun(&b, e.report.Finalized)
	if len(e.report.Finalized) > 0 {
		job.QueueFinalize(&b, e.report.Finalized)
	}
	if b.Len() == 0 {
		return nil
	}
	return fault.At(tx.SendBatch(ctx, &b).Close(), "write")
}

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
