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
	"triprize/internal/domain/money"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/store/wallet"
)

// Cancellation is the payload of a cancellation job: which purchase to cancel, for
// whom and why.
type Cancellation struct {
	PurchaseID uuid.UUID `json:"purchase_id"`
	By         string    `json:"by"` // role:client, and /user when one was signed in
	Reason     string    `json:"reason,omitempty"`
	AnyTime    bool      `json:"any_time,omitempty"` // ignore the policy's deadline, as for operators
}

// Cancelled is the result of a succeeded cancellation job.
type Cancelled struct {
	PurchaseID uuid.UUID        `json:"purchase_id"`
	State      purchase.State   `json:"state"`
	Positions  []ResultPosition `json:"positions"` // free again
	Amount     money.Amount     `json:"amount"`    // refunded to the wallet, or for the app to refund
	Currency   string           `json:"currency"`
}

// Cancel settles a cancellation job in one transaction: it cancels the purchase,
// frees its positions and refunds the wallet that paid. When the purchase cannot be
// cancelled the job fails. job.ErrSettled means that the job is final already. Cancel
// waits for the campaign, and at most walletWait for the wallet.
//
// The campaign's lock makes cancellations and sales take turns. After a cancellation a
// position is free, so the next sale may not sell out the campaign. After the sale that
// freezes the campaign, a cancellation is refused.
func (s *Seller) Cancel(ctx context.Context, ref job.Ref, walletWait time.Duration) (job.Outcome, error) {
	var outcome job.Outcome
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		c, err := readCancellation(ctx, tx, ref)
		if err == nil {
			err = c.check()
		}
		var refunded *wallet.Book // nil: the app has the money
		if err == nil && c.bought.PaymentMethod == purchase.Wallet {
			refunded, err = refund(ctx, tx, c.bought, walletWait)
		}
		switch {
		case err == nil:
			outcome, err = c.write(ctx, tx, refunded)
		case isRefusal(err):
			outcome = job.Refused(ref.ID, err)
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

// isRefusal reports whether err refuses the cancellation; other errors are failures.
func isRefusal(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && (f.Code == fault.NotFound || f.Code == fault.StateConflict)
}

// cancellation is a queued cancellation job with all that its decision needs.
type cancellation struct {
	Cancellation
	jobID    uuid.UUID
	campaign campaign.State
	until    *time.Time // the policy's deadline
	late     bool       // it was accepted after the deadline
	bought   purchase.Purchase
}

// readCancellation locks the campaign and reads, in later statements, what the
// decision needs.
func readCancellation(ctx context.Context, tx pgx.Tx, ref job.Ref) (c cancellation, err error) {
	if err := campaign.Lock(ctx, tx, ref.CampaignID); err != nil {
		return c, err
	}
	c.jobID = ref.ID
	var payload []byte
	// The deadline applies to the time of the request, not of this transaction.
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

// check returns why the purchase cannot be cancelled, or nil.
func (c cancellation) check() error {
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

// write cancels the purchase, frees its positions, refunds the money and settles the
// job, in the order of locks. Each statement fails when it does not change exactly
// its rows.
func (c cancellation) write(ctx context.Context, tx pgx.Tx, refunded *wallet.Book) (job.Outcome, error) {
	p, n := c.bought, len(c.bought.Items)
	answer, err := json.Marshal(Cancelled{PurchaseID: p.ID, State: purchase.Cancelled, Positions: resultPositions(p.Items),
		Amount: p.Amount, Currency: p.Currency})
	if err != nil {
		return job.Outcome{}, fmt.Errorf("write: %w", err)
	}
	outcome := job.Outcome{ID: c.jobID, Result: answer}
	var b pgx.Batch
	campaign.Changes{p.CampaignID: {Sold: -n}}.Queue(&b)
	inventory.QueueTakeBack(&b, p.CampaignID, p.ID, n)
	purchase.QueueCancel(&b, p.ID, c.By, c.Reason)
	if refunded != nil {
		refunded.Queue(&b)
	}
	job.QueueSettle(&b, []job.Outcome{outcome})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return job.Outcome{}, fmt.Errorf("write: %w", err)
	}
	return outcome, nil
}
