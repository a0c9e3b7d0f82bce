package sale

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// SettlePayments decides, in one transaction, what becomes of payments of purchase jobs whose end
// is known, and leaves others as they are:
//
//   - captured: the positions are sold; or they are freed and the money is refunded,
//     because the campaign or the purchase was cancelled meanwhile. Late money, whose
//     positions are free again, is refunded.
//   - ended: the positions are free again, and the job fails or is cancelled. Positions of a
//     hold whose time is not over are its again, unless the buyer or the campaign has cancelled.
//   - expiring, over, and not to be cancelled: the positions are free again, and the
//     payment is late. Its job stays open, unless its buyer has cancelled the purchase.
//
// A job is Busy when the campaign or the row of its payment is locked for longer than wait.
func (s *Seller) SettlePayments(ctx context.Context, refs []job.Ref, wait job.LockWait) (Report, error) {
	return s.run(ctx, "settlement", refs, wait, s.settlePayments)
}

func (s *Seller) settlePayments(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait job.LockWait) (Report, error) {
	in, err := lockPayments(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	if err := in.findHolds(ctx, tx); err != nil {
		return Report{}, err
	}
	for _, c := range in.payments {
		decided, err := c.decide()
		if err != nil {
			return Report{}, err
		}
		if err := in.settle(c, decided); err != nil {
			return Report{}, err
		}
	}
	if err := in.dropFinal(ctx, tx); err != nil {
		return Report{}, err
	}
	if err := s.finish(ctx, tx, in.campaigns, in.effects); err != nil {
		return Report{}, err
	}
	failpoint.Hit("settlement.commit", names(in.payments, func(c *settlement) string { return c.bought.UserID }))
	return in.Report, nil
}

// settlement is a payment with all that its decision needs.
type settlement struct {
	*payment.Payment
	campaign *campaign.Snapshot
	bought   *purchase.Purchase
	reserved bool      // all of its positions are reserved for it, or none is
	hold     uuid.UUID // that it has used, and that is restored; zero: none
}

func (c *settlement) owned() inventory.Allocation {
	return inventory.Allocation{CampaignID: c.CampaignID, PurchaseID: c.PurchaseID, Items: c.bought.Items, HoldID: c.hold,
		UserID: c.bought.UserID, HeldSince: c.KeptSince, ReservedAt: c.CreatedAt, Deadline: c.Deadline}
}

// open reports whether the purchase, and with it its job, waits for the payment.
func (c *settlement) open() bool { return c.bought.State.Open() }

// cancelled reports whether its buyer has cancelled the purchase.
func (c *settlement) cancelled() bool {
	return c.CancelJob != nil || c.Ending != nil && *c.Ending == payment.CancelledByBuyer
}

// settlements is what a transaction has locked and read of payments, and its effects.
type settlements struct {
	*effects
	campaigns map[uuid.UUID]*campaign.Snapshot
	payments  []*settlement // in the order in which they were found
}

func newSettlements() *settlements {
	in := &settlements{effects: newEffects(), campaigns: make(map[uuid.UUID]*campaign.Snapshot)}
	in.alsoCancelled = true
	return in
}

// lockPayments locks the campaigns of jobs, then the payments of the jobs, and reads in
// later statements what the decisions need.
func lockPayments(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait job.LockWait) (*settlements, error) {
	in := newSettlements()
	jobs, campaigns := idsOf(refs)
	locked := make(map[uuid.UUID]bool, len(campaigns))
	var found []payment.Ref
	var b pgx.Batch
	queueLock(&b, wait, campaigns, locked)
	campaign.QueueSnapshots(&b, campaigns, in.campaigns)
	payment.QueueOfJobs(&b, jobs, &found)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("lockPayments: %w", err)
	}
	var free []payment.Ref // of campaigns that this transaction has locked
	seen := make(map[uuid.UUID]bool, len(found))
	for _, ref := range found {
		again := seen[ref.PurchaseID] // two tasks may be for one payment
		seen[ref.PurchaseID] = true
		switch {
		case again:
		case in.campaigns[ref.CampaignID] == nil:
			return nil, fmt.Errorf("job %s: its payment is of campaign %s, which is not locked", ref.PurchaseID, ref.CampaignID)
		case !locked[ref.CampaignID]:
			in.Busy, in.Locked = append(in.Busy, ref.Job()), append(in.Locked, ref.Job())
		default:
			free = append(free, ref)
		}
	}
	if len(free) == 0 {
		return in, nil
	}
	return in, in.read(ctx, tx, free, wait)
}

// read locks payments whose campaigns are locked, and reads them, their purchases, and how
// many positions these have reserved.
func (in *settlements) read(ctx context.Context, tx pgx.Tx, refs []payment.Ref, wait job.LockWait) error {
	n := len(refs)
	ids, locked, payments := make([]uuid.UUID, n), make(map[uuid.UUID]bool, n), make(map[uuid.UUID]*payment.Payment, n)
	bought, reserved := make(map[uuid.UUID]*purchase.Purchase, n), make(map[uuid.UUID]int, n)
	for i, ref := range refs {
		ids[i] = ref.PurchaseID
	}
	var b pgx.Batch
	payment.QueueLock(&b, ids, queueLimit(&b, wait.Wallets), locked, payments)
	purchase.QueueGet(&b, ids, bought)
	inventory.QueueCountReserved(&b, ids, reserved)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("lockPayments: %w", err)
	}
	for _, ref := range refs {
		if !locked[ref.PurchaseID] {
			in.Busy = append(in.Busy, ref.Job())
			continue
		}
		p := bought[ref.PurchaseID]
		if p == nil {
			return fmt.Errorf("%w: the payment of purchase %s has none", postgres.ErrRows, ref.PurchaseID)
		}
		kept := reserved[p.ID]
		if kept != 0 && kept != len(p.Items) {
			return fmt.Errorf("%w: purchase %s has %d of its %d positions", postgres.ErrRows, p.ID, kept, len(p.Items))
		}
		in.payments = append(in.payments, &settlement{Payment: payments[p.ID], campaign: in.campaigns[ref.CampaignID], bought: p, reserved: kept > 0})
	}
	return nil
}

// findHolds finds, for purchases that end unpaid while the sale goes on, the holds that they
// have used and whose time is not over. Without such a purchase it costs nothing.
func (in *settlements) findHolds(ctx context.Context, tx pgx.Tx) error {
	var ids []uuid.UUID
	for _, c := range in.payments {
		if c.Phase == payment.Ended && c.open() && c.reserved && !c.cancelled() && c.campaign.State == campaign.Active && c.campaign.Open {
			ids = append(ids, c.PurchaseID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := inventory.UsedHolds(ctx, tx, ids)
	for _, c := range in.payments {
		c.hold = found[c.PurchaseID]
	}
	return err
}
