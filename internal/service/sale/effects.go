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
