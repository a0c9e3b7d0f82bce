package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/store/refund"
	"triprize/internal/store/wallet"
)

// returns is what a transaction of cancellations writes, and the report that is valid
// after its commit.
type returns struct {
	changes   campaign.Changes
	positions []inventory.Return
	parts     map[uuid.UUID][]purchase.PartialCancellation
	purchases []uuid.UUID // paid external or by wallet
	by        []string
	reasons   []string
	payees    *wallet.Payees
	cards     []purchase.End // of purchases that are paid by card
	refunds   []refund.Refund
	taking    taking
	report    Report
}

// decide decides one cancellation, which sees what those before it have done. Its error
// stops the batch; a refusal is a decision.
func (r *returns) decide(c *cancellation) error {
	err := c.check()
	if fault.CodeOf(err) == fault.PurchaseDisputed && c.busy() {
		err = nil // it was read without its lock
	}
	byWallet := err == nil && c.bought.PaymentMethod == purchase.Wallet
	if byWallet && r.payees.Busy(ownerOf(c.bought)) || err == nil && c.busy() {
		r.report.Busy = append(r.report.Busy, c.Ref)
		return nil
	}
	if err == nil && c.payment != nil {
		if err = c.checkPayment(); err == nil {
			r.take(c)
			return nil
		}
	}
	if err == nil && byWallet {
		err = r.payees.PayBack(c.payBack())
	}
	switch {
	case err == nil:
		return r.cancel(c)
	case errors.Is(err, wallet.ErrBroken): // it could never succeed
		r.report.Broken = append(r.report.Broken, err)
	case !isRefusal(err):
		return err
	}
	refused := job.Refused(c.ID, err)
	refused.PurchaseID = c.PurchaseID
	r.report.Finalized = append(r.report.Finalized, refused)
	return nil
}

func (r *returns) cancel(c *cancellation) error {
	p, items := c.bought, c.items()
	amount, byCard := purchase.PriceOf(items), p.PaymentMethod == purchase.Card
	switch {
	case c.partial():
		r.keepRest(c, items, amount)
	case byCard:
		p.State = purchase.Refunding // for further cancellations of it
		r.cards = append(r.cards, purchase.End{ID: p.ID, State: p.State, By: c.By, Reason: c.Reason})
	default:
		p.State = purchase.Cancelled
		r.purchases, r.by, r.reasons = append(r.purchases, p.ID), append(r.by, c.By), append(r.reasons, c.Reason)
	}
	answer, err := json.Marshal(Cancelled{PurchaseID: p.ID, State: p.State, Positions: items, Amount: amount, Currency: p.Currency, Board: c.board + 1})
	if err != nil {
		return fmt.Errorf("the result of job %s: %w", c.ID, err)
	}
	r.report.Finalized = append(r.report.Finalized, job.Outcome{ID: c.ID, Result: answer, PurchaseID: p.ID})
	made := refundOf(p, amount, refund.PurchaseCancelled)
	r.refunds = append(r.refunds, made)
	if byCard {
		r.report.Refunds = append(r.report.Refunds, made.Item())
	}
	for _, item := range items {
		r.positions = append(r.positions, inventory.Return{CampaignID: p.CampaignID, PurchaseID: p.ID, Position: item.Position})
	}
	if r.changes == nil {
		r.changes = make(campaign.Changes)
	}
	r.changes.Add(p.CampaignID, campaign.Change{Sold: -len(items)})
	return nil
}

// keepRest leaves a purchase what is not cancelled, for further cancellations of it, too.
func (r *returns) keepRest(c *cancellation, items []purchase.Item, amount money.Amount) {
	p, part := c.bought, purchase.PartialCancellation{JobID: c.ID, By: c.By, Reason: c.Reason, Items: items, Amount: amount}
	p.Items = slices.DeleteFunc(slices.Clone(p.Items), func(i purchase.Item) bool { return slices.Contains(c.Positions, i.Position) })
	p.Partial = append(p.Partial, part)
	if r.parts == nil {
		r.parts = make(map[uuid.UUID][]purchase.PartialCancellation)
	}
	r.parts[p.ID] = append(r.parts[p.ID], part)
}

// write cancels the purchases, frees their positions, refunds the money and finalizes the
// jobs, in one round trip and in the order of locks. Each statement fails when it does
// not change exactly its rows.
func (r *returns) write(ctx context.Context, tx pgx.Tx) error {
	if len(r.report.Finalized) == 0 && len(r.taking.begun) == 0 {
		return nil
	}
	var b pgx.Batch
	r.changes.Queue(&b)
	r.taking.queuePayments(&b)
	queueSome(&b, refundSteps(r.refunds), queueSteps)
	queueSome(&b, r.refunds, refund.QueueInsert)
	queueSome(&b, r.positions, inventory.QueueTakeBack)
	if len(r.parts) > 0 {
		if err := purchase.QueueCancelPart(&b, r.parts); err != nil {
			return err
		}
	}
	if len(r.purchases) > 0 {
		purchase.QueueCancel(&b, r.purchases, r.by, r.reasons)
	}
	queueSome(&b, r.cards, purchase.QueueRefunding)
	r.taking.queuePurchases(&b)
	r.payees.Queue(&b)
	r.taking.queueBegun(&b, r.report.Finalized)
	queueSome(&b, r.report.Finalized, job.QueueFinalize)
	return fault.At(tx.SendBatch(ctx, &b).Close(), "write")
}

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

func ownerOf(p *purchase.Purchase) wallet.Owner {
	return wallet.Owner{Client: p.Client, ID: p.UserID, Currency: p.Currency}
}

// payBack is what the cancellation gives back to the wallet that paid.
func (c *cancellation) payBack() wallet.PayBack {
	back := wallet.PayBack{PurchaseID: c.bought.ID, Owner: ownerOf(c.bought), Amount: purchase.PriceOf(c.items()), By: c.By}
	if c.partial() {
		back.Part = c.ID
	}
	return back
}

// lockPayees locks the wallets of purchases that may be cancelled and were paid by
// wallet. wait says whether to wait for those that another transaction has locked.
func (in *cancellations) lockPayees(ctx context.Context, tx pgx.Tx, wait Wait) (*wallet.Payees, error) {
	var want []wallet.PayBack
	for _, c := range in.wanted {
		if c.check() == nil && c.bought.PaymentMethod == purchase.Wallet {
			want = append(want, c.payBack())
			if all := want[len(want)-1]; all.Part != uuid.Nil { // those before it may leave nothing else
				all.Part = uuid.Nil
				want = append(want, all)
			}
		}
	}
	if len(want) == 0 {
		return &wallet.Payees{}, nil
	}
	mode, err := wait.forWallets(ctx, tx)
	if err != nil {
		return nil, err
	}
	return wallet.OpenPayees(ctx, tx, want, mode)
}

// openWallets locks wallets as w says.
func (w Wait) openWallets(ctx context.Context, tx pgx.Tx, want wallet.Wanted) (*wallet.UnitOfWork, error) {
	mode, err := w.forWallets(ctx, tx)
	if err != nil {
		return nil, err
	}
	return wallet.Open(ctx, tx, want, mode)
}

// forWallets returns how to lock wallets, and bounds the waits of the rest of the
// transaction if it is to wait for them.
func (w Wait) forWallets(ctx context.Context, tx pgx.Tx) (postgres.LockMode, error) {
	if w.Wallets == 0 {
		return postgres.SkipLocked, nil
	}
	return postgres.WaitForLocks, postgres.LimitLockWaits(ctx, tx, w.Wallets)
}
