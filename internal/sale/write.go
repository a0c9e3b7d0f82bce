package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
)

// firstCheck is when a payment whose first task was lost is due again.
const firstCheck = 5 * time.Second

// effects is what a transaction writes, and the report that is valid after its commit.
type effects struct {
	Report
	changes       campaign.Changes
	alsoCancelled bool // the changes may free positions of cancelled campaigns

	reservations      Reservations // of begun and reserved
	now               time.Time    // likewise: when they begin
	begun             []payment.New
	settled           []payment.Settlement
	cancelledPayments []payment.Cancellation // by cancellations, before their capture
	captured          []payment.Cancellation // likewise, after it
	steps             []payment.Step
	refunds           []payment.Refund

	reserved      []inventory.Allocation
	sold          []inventory.Allocation // that were free or held
	paid          []inventory.Allocation // that were reserved, and are sold
	freed         []inventory.Allocation // that were reserved
	unpaid        []inventory.Allocation // whose positions are freed, too
	restoredHolds []inventory.Allocation
	freedSold     []inventory.Allocation // that were sold

	purchases []purchase.Purchase // new ones
	completed []uuid.UUID
	ends      []purchase.End // of open purchases
	lateEnds  []purchase.End // of purchases that had ended before
	cancelled []purchase.End // of completed purchases
	parts     map[uuid.UUID][]purchase.PartialCancellation

	wallets     *wallet.Buyers
	waiting     []uuid.UUID // jobs that wait for the end of a payment from now on
	waitingFor  []uuid.UUID // the purchases of these
	notAwaiting []uuid.UUID // purchases, and with them their jobs, that do not wait for their buyers any more
}

func newEffects() *effects {
	return &effects{changes: make(campaign.Changes), parts: make(map[uuid.UUID][]purchase.PartialCancellation), wallets: &wallet.Buyers{}}
}

// succeed completes a job with what has become of its purchase.
func (e *effects) succeed(jobID uuid.UUID, r Result) error {
	answer, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", jobID, err)
	}
	done := job.Outcome{ID: jobID, Result: answer, PurchaseID: r.PurchaseID}
	if r.State == "" { // it is bought
		done.Positions = purchase.FormatItems(r.Positions)
		e.Sold += len(r.Positions)
	}
	e.Outcomes = append(e.Outcomes, done)
	return nil
}

func (e *effects) fail(jobID, purchaseID uuid.UUID, why error) {
	refused := job.Refused(jobID, why)
	refused.PurchaseID = purchaseID
	e.Outcomes = append(e.Outcomes, refused)
	if errors.Is(why, wallet.ErrBroken) {
		e.Broken = append(e.Broken, why)
	}
}

// refund refunds money of a purchase: to a wallet in this transaction, to a card later.
func (e *effects) refund(p *purchase.Purchase, amount money.Amount, reason payment.RefundReason) {
	made := payment.Refund{ID: uuidv7.New(), PurchaseID: p.ID, CampaignID: p.CampaignID, UserID: p.UserID, Method: payment.RefundMethod(p.PaymentMethod),
		Amount: amount, Currency: p.Currency, Reason: reason}
	e.refunds = append(e.refunds, made)
	if made.Method == payment.RefundToCard {
		why := string(reason)
		e.Due = append(e.Due, made.Item())
		e.steps = append(e.steps, payment.Step{PurchaseID: p.ID, Event: payment.StepRefundOpen, Detail: &why})
	}
}

// write writes everything, in one round trip and in the order of locks. Each statement
// fails when it does not change exactly its rows.
func (e *effects) write(ctx context.Context, tx pgx.Tx) error {
	var b pgx.Batch
	if e.alsoCancelled {
		e.changes.QueueBack(&b)
	} else {
		e.changes.Queue(&b)
	}
	if len(e.begun) > 0 {
		payment.QueueInsert(&b, e.begun, e.reservations.MaxExtension, e.reservations.AfterSaleEnd, firstCheck)
	}
	queueSome(&b, e.settled, payment.QueueSettle)
	queueSome(&b, e.cancelledPayments, payment.QueueGiveUp)
	queueSome(&b, e.captured, payment.QueueCancelCaptured)
	queueSome(&b, e.steps, func(b *pgx.Batch, steps []payment.Step) { payment.QueueSteps(b, steps...) })
	queueSome(&b, e.refunds, payment.QueueInsertRefunds)
	if len(e.reserved) > 0 {
		inventory.QueueReserve(&b, e.reserved, e.now, e.reservations.HoldQuota, e.reservations.MaxExtension)
	}
	queueSome(&b, e.sold, inventory.QueueSell)
	inventory.QueueChange(&b, e.freed, inventory.Reserved, inventory.Available)
	queueSome(&b, e.restoredHolds, inventory.QueueRestoreHolds)
	queueSome(&b, e.unpaid, inventory.QueueAddReservedTimes)
	inventory.QueueChange(&b, e.paid, inventory.Reserved, inventory.Sold)
	inventory.QueueChange(&b, e.freedSold, inventory.Sold, inventory.Available)
	queueSome(&b, e.purchases, purchase.QueueInsert)
	queueSome(&b, e.completed, purchase.QueueComplete)
	purchase.QueueEnd(&b, e.ends, purchase.Pending, purchase.AwaitingAction)
	purchase.QueueEnd(&b, e.lateEnds, purchase.Failed, purchase.Cancelled)
	if len(e.parts) > 0 {
		if err := purchase.QueueCancelPart(&b, e.parts); err != nil {
			return err
		}
	}
	purchase.QueueEnd(&b, e.cancelled, purchase.Completed)
	queueSome(&b, e.notAwaiting, purchase.QueueNotAwaiting)
	e.wallets.Queue(&b)
	if len(e.waiting) > 0 { // all jobs are locked at once, so that it has one order
		all := slices.Concat(e.waiting, e.notAwaiting)
		for _, o := range e.Outcomes {
			all = append(all, o.ID)
		}
		job.QueueLock(&b, all)
		job.QueueBegun(&b, e.waiting, e.waitingFor)
		queueSome(&b, e.notAwaiting, job.QueueNotAwaiting)
	}
	queueSome(&b, e.Outcomes, job.QueueComplete)
	return fault.At(postgres.Send(ctx, tx, &b), "write")
}

// queueSome queues a statement for items, if there are any.
func queueSome[T any](b *pgx.Batch, items []T, queue func(*pgx.Batch, []T)) {
	if len(items) > 0 {
		queue(b, items)
	}
}

// finish writes effects, and ends the sale of every campaign whose last position this transaction sells:
// the campaign is drawing from its commit on, and a job draws it. It happens once per campaign, so
// its round trips do not matter. Reserved positions are not sold: while a payment is pending, no
// draw begins. Where what is sold at the end is drawn, the last payment begins the draw, however it
// has ended.
func (s *Seller) finish(ctx context.Context, tx pgx.Tx, campaigns map[uuid.UUID]*campaign.Snapshot, e *effects) error {
	if err := e.write(ctx, tx); err != nil {
		return err
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.changes), uuidv7.Compare) {
		counts, sold := campaigns[id].Counts, e.changes[id].Sold
		if sold <= 0 || counts.Sold+sold < counts.Total {
			if err := s.endIfDue(ctx, tx, campaigns[id], e); err != nil {
				return err
			}
			continue
		}
		if err := campaign.StartDraw(ctx, tx, id); err != nil {
			return fmt.Errorf("finish: %w", err)
		}
		if err := s.draw(ctx, tx, id, job.BySellOut, e); err != nil {
			return err
		}
	}
	return nil
}

// draw makes the job that draws a campaign whose sale this transaction has ended.
func (s *Seller) draw(ctx context.Context, tx pgx.Tx, id uuid.UUID, by job.By, e *effects) error {
	made, err := job.Insert(ctx, tx, job.DrawRequest(id, by, "", s.jobRetention, job.OriginIn(e.Outcomes, id)))
	e.Messages = append(e.Messages, made...)
	return fault.At(err, "draw(%s)", id)
}
