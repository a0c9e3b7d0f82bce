package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// Cancellation is what a cancellation job carries: which purchase, and who wants
// it back.
type Cancellation struct {
	PurchaseID uuid.UUID `json:"purchase_id"`
	By         string    `json:"by"` // role:client, and /user when one was signed in
	Reason     string    `json:"reason,omitempty"`
	AnyTime    bool      `json:"any_time,omitempty"` // the policy's deadline is no bar, as for operators
}

// Cancelled is what a succeeded cancellation job answers.
type Cancelled struct {
	PurchaseID uuid.UUID        `json:"purchase_id"`
	State      purchase.State   `json:"state"`
	Positions  []ResultPosition `json:"positions"` // free again
	Amount     int64            `json:"amount"`    // minor units, to be given back by whoever collected it
	Currency   string           `json:"currency"`
}

// Cancel settles a cancellation job in one transaction: the purchase is
// cancelled, its positions are free, and counters and the user's limit with them.
// What cannot be cancelled settles the job as failed. job.ErrSettled means that
// there is nothing left to do.
//
// The campaign's lock makes it take turns with sales: it comes before the sale
// that freezes the campaign, which is then no freeze, or after, and is refused.
func (s *Seller) Cancel(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	var outcome job.Outcome
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		c, err := readCancellation(ctx, tx, ref)
		if err == nil {
			err = c.refusal()
		}
		if err == nil {
			c.book, err = c.giveBack(ctx, tx)
		}
		switch {
		case err == nil:
			outcome, err = c.write(ctx, tx)
		case isRefusal(err):
			problem := job.ProblemOf(err)
			outcome = job.Outcome{ID: ref.ID, Problem: &problem}
			err = job.Settle(ctx, tx, outcome)
		}
		if err != nil {
			return err
		}
		failpoint.Hit("cancellation.commit", func() []string { return []string{c.bought.UserID} })
		return nil
	})
	if err != nil {
		return job.Outcome{}, fmt.Errorf("sale.Cancel(%s): %w", ref.ID, err)
	}
	failpoint.Hit("cancellation.committed", nil)
	return outcome, nil
}

// isRefusal tells an answer to who asked from what went wrong with the asking.
func isRefusal(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && (f.Code == fault.NotFound || f.Code == fault.StateConflict)
}

// cancellation is a queued cancellation job with what it is decided on.
type cancellation struct {
	Cancellation
	jobID    uuid.UUID
	campaign campaign.State
	until    *time.Time // the policy's deadline
	late     bool       // it was accepted when the deadline was over
	bought   purchase.Purchase
	book     *wallet.Book // that gives the money back; nil: the app has it
}

// readCancellation locks the campaign and reads, in later statements, what the
// job is decided on.
func readCancellation(ctx context.Context, tx pgx.Tx, ref job.Ref) (c cancellation, err error) {
	if err := campaign.Lock(ctx, tx, ref.CampaignID); err != nil {
		return c, err
	}
	c.jobID = ref.ID
	var payload []byte
	// Late is who asked late: what a job waits in the queue is at nobody's cost.
	err = tx.QueryRow(ctx, `
		SELECT j.payload, c.state, p.until, coalesce(j.accepted_at >= p.until, false)
		FROM jobs j
		JOIN campaigns c ON c.id = j.campaign_id
		CROSS JOIN LATERAL (SELECT (c.policies ->> 'cancellation_until')::timestamptz AS until) p
		WHERE j.id = $1 AND j.state = 'queued'`, ref.ID).Scan(&payload, &c.campaign, &c.until, &c.late)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, job.ErrSettled
	}
	if err != nil {
		return c, fmt.Errorf("read: %w", err)
	}
	if err := json.Unmarshal(payload, &c.Cancellation); err != nil {
		return c, fmt.Errorf("read: %w", err)
	}
	c.bought, err = purchase.Get(ctx, tx, c.PurchaseID)
	if err == nil && c.bought.CampaignID != ref.CampaignID {
		err = fmt.Errorf("read: purchase %s is of campaign %s, which is not locked", c.PurchaseID, c.bought.CampaignID)
	}
	return c, err
}

// refusal says why the purchase cannot be cancelled, or nothing.
func (c cancellation) refusal() error {
	switch {
	case c.bought.State == purchase.Cancelled:
		return fault.New(fault.StateConflict, "the purchase is cancelled already")
	case c.bought.State != purchase.Completed:
		return fault.New(fault.StateConflict, "the purchase is %s; only a completed one can be cancelled", c.bought.State)
	case c.campaign == campaign.Drawing, c.campaign == campaign.Completed:
		return fault.New(fault.StateConflict, "the campaign is %s: every position is sold, and the list of buyers is frozen", c.campaign)
	case c.campaign != campaign.Active:
		return fault.New(fault.StateConflict, "the campaign is %s; purchases can be cancelled while it is active", c.campaign)
	case c.late && !c.AnyTime:
		return fault.New(fault.StateConflict, "purchases of this campaign could be cancelled until %s; an operator still can", c.until.UTC().Format(time.RFC3339))
	case c.bought.PaymentMethod != purchase.External && c.bought.PaymentMethod != purchase.Wallet:
		return fault.New(fault.StateConflict, "the purchase was paid by %s; only those paid external or by wallet can be cancelled", c.bought.PaymentMethod)
	}
	return nil
}

// write frees the positions, settles the job and cancels the purchase, in the
// order of locks. Every statement must touch exactly the rows it means.
func (c cancellation) write(ctx context.Context, tx pgx.Tx) (job.Outcome, error) {
	n := len(c.bought.Items)
	result := Cancelled{PurchaseID: c.PurchaseID, State: purchase.Cancelled, Amount: c.bought.Amount, Currency: c.bought.Currency,
		Positions: make([]ResultPosition, n)}
	for i, item := range c.bought.Items {
		result.Positions[i] = ResultPosition{Layer: item.Layer, Column: item.Column, Price: item.Price}
	}
	answer, err := json.Marshal(result)
	if err != nil {
		return job.Outcome{}, fmt.Errorf("write: %w", err)
	}
	outcome := job.Outcome{ID: c.jobID, Result: answer}
	var b pgx.Batch
	campaign.QueueCount(&b, []campaign.Change{{ID: c.bought.CampaignID, Sold: -n}}).Exec(exactly(1, "campaigns"))
	job.QueueSettle(&b, []job.Outcome{outcome}).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 { // given up meanwhile, which takes no campaign's lock
			return job.ErrSettled
		}
		return nil
	})
	board.QueueFree(&b, c.bought.CampaignID, c.PurchaseID).Exec(exactly(n, "positions"))
	purchase.QueueCancel(&b, c.PurchaseID, c.By, c.Reason).Exec(exactly(1, "purchases"))
	if c.book != nil {
		c.book.Queue(&b)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return job.Outcome{}, fmt.Errorf("write: %w", err)
	}
	return outcome, nil
}
