package sale

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// The most that one transaction of EndSale ends.
const (
	maxExpired = 256 // payments
	maxHolds   = 100
)

// End is what EndSale has done.
type End struct {
	Ended    bool          // the campaign is drawing by this transaction
	Messages []job.Message // of its draw job, to be dispatched
	Holds    int           // that were still active
	GivenUp  int           // payments whose positions are free again

	Outcomes []job.Outcome // of jobs whose payments expired
}

// EndSale ends the sale of a campaign that is drawn at its end, from that time on by the
// database's clock: it ends the holds, and when no position is reserved any more, sets drawing
// and inserts the draw job. For any other campaign it does nothing. Many holds end in several
// transactions; the effects in end are committed, with an error too.
//
// Reservations stay: the transaction that frees or sells the last reserved position ends the
// sale as well. No expired reservation delays the end beyond its deadline with every extension:
// then its payment is late, its positions are free, and money that still comes is refunded. A
// payment that is being captured delays the end without limit: its buyer has paid in time.
func (s *Seller) EndSale(ctx context.Context, id uuid.UUID) (end End, err error) {
	for {
		var step End
		err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			step, err = s.endSale(ctx, tx, id)
			return err
		})
		if err != nil {
			return end, fmt.Errorf("sale.EndSale(%s): %w", id, err)
		}
		end.Ended, end.Messages, end.Outcomes = step.Ended, step.Messages, append(end.Outcomes, step.Outcomes...)
		end.Holds, end.GivenUp = end.Holds+step.Holds, end.GivenUp+step.GivenUp
		if step.Ended || step.Holds < maxHolds {
			return end, nil
		}
	}
}

func (s *Seller) endSale(ctx context.Context, tx pgx.Tx, id uuid.UUID) (end End, err error) {
	in := newSettlements()
	var held []*inventory.Hold
	var open []payment.Ref
	var b pgx.Batch
	campaign.QueueLock(&b, []uuid.UUID{id}, postgres.WaitForLocks, func(uuid.UUID) {})
	campaign.QueueSnapshots(&b, []uuid.UUID{id}, in.campaigns)
	inventory.QueueFindActive(&b, id, maxHolds, &held)
	payment.QueueOutOfTime(&b, id, maxExpired, &open)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return end, fmt.Errorf("endSale: %w", err)
	}
	c := in.campaigns[id]
	if c == nil || c.State != campaign.Active || !c.Ended {
		return end, nil
	}
	var release pgx.Batch
	inventory.QueueRelease(&release, held, in.changes)
	if err := postgres.Send(ctx, tx, &release); err != nil {
		return end, fmt.Errorf("endSale: %w", err)
	}
	if len(open) > 0 {
		if err := in.read(ctx, tx, open, job.SkipLocked); err != nil { // what is locked is being settled
			return end, err
		}
	}
	for _, p := range in.payments {
		if p.Phase != payment.Expiring || !p.open() || !p.reserved { // its state has changed since: it is settled elsewhere
			continue
		}
		if err := in.settle(p, p.overdue()); err != nil {
			return end, err
		}
		end.GivenUp++
	}
	if err := in.dropFinal(ctx, tx); err != nil {
		return end, err
	}
	if err := in.write(ctx, tx); err != nil {
		return end, err
	}
	err = s.endIfDue(ctx, tx, c, in.effects)
	end.Holds, end.Outcomes, end.Messages, end.Ended = len(held), in.Outcomes, in.Messages, len(in.Messages) > 0
	failpoint.Hit("end.commit", func() []string { return []string{id.String()} })
	return end, err
}

// endIfDue ends the sale of a campaign that is drawn at its end, if that is over and e frees
// or sells the last reserved position. It comes after all other writes; the
// statement itself decides.
func (s *Seller) endIfDue(ctx context.Context, tx pgx.Tx, c *campaign.Snapshot, e *effects) error {
	if !c.Ended || c.State != campaign.Active || c.Counts.Reserved+e.changes[c.ID].Reserved > 0 {
		return nil
	}
	ended, err := campaign.EndSale(ctx, tx, c.ID)
	if err != nil || !ended {
		return err
	}
	return s.draw(ctx, tx, c.ID, job.BySaleEnd, e)
}

// ExpireReservations expires up to limit payments whose deadline is over and that no worker
// has, in one transaction, and returns how many. Their positions stay reserved until the
// provider confirms that they are not paid, see [Seller.SettlePayments].
func ExpireReservations(ctx context.Context, db postgres.Beginner, limit int) (n int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		expired, err := payment.Expire(ctx, tx, limit)
		if n = len(expired); err != nil || n == 0 {
			return err
		}
		purchases := payment.PurchasesOf(expired)
		var b pgx.Batch
		purchase.QueueNotAwaiting(&b, purchases)
		job.QueueNotAwaiting(&b, purchases)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return 0, fault.At(err, "sale.ExpireReservations")
	}
	return n, nil
}
