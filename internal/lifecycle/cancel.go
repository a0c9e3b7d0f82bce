package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
)

// CancelOrder is the payload of a job.
type CancelOrder struct {
	By       string `json:"by"`               // role:client, and /user when one was signed in; system
	Reason   string `json:"reason,omitempty"` // at most 500 characters
	IfUnsold bool   `json:"if_unsold,omitempty"`
	Void     bool   `json:"void,omitempty"` // of a draw that is stuck
}

// CancelResult is the result of a job that has succeeded. It counts purchases.
type CancelResult struct {
	CampaignID uuid.UUID      `json:"campaign_id"`
	State      campaign.State `json:"state"`
	Refunded   RefundCounts   `json:"refunded"`
	Waiting    int            `json:"waiting"` // card refunds that wait for a person
}

// RefundCounts is how many purchases were refunded, by the way they were paid.
type RefundCounts struct {
	Wallet   int `json:"wallet"`
	Card     int `json:"card"`     // refunds that were made; those that wait are in CancelResult.Waiting
	External int `json:"external"` // listed for the app to do
}

// ErrSnoozed means that some of the campaign's money is not on its way yet: retry later.
var ErrSnoozed = errors.New("lifecycle: purchases, payments or refunds of the campaign are not finished")

// CancelSnoozed is ErrSnoozed with what the job shows meanwhile: wallets cannot take their money
// (an operator has to repair them, or their owners to spend some), or the void of a draw is
// announced.
type CancelSnoozed struct {
	job.Blocked
	After time.Duration // until the next attempt
}

func (w *CancelSnoozed) Error() string { return "lifecycle: " + w.Reason }

// Unwrap returns ErrSnoozed.
func (w *CancelSnoozed) Unwrap() error { return ErrSnoozed }

// The times between two attempts while wallets cannot take their money; the longer one also while
// a void is announced.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// RowWait is how long an attempt should wait for a campaign that is locked elsewhere, before it
// is made again or the job is snoozed.
const RowWait = 250 * time.Millisecond

// chunkSize bounds the purchases that a transaction refunds.
const chunkSize = 100

// Observer is called after commits. Both functions must be quick, and what they do may be
// lost.
type Observer struct {
	Advanced func(jobID uuid.UUID)    // the job has a new progress
	Due      func(items []lease.Item) // payments that are given up, and new card refunds
}

// Canceller cancels campaigns.
type Canceller struct {
	db       postgres.Pool
	observer Observer
	logger   *slog.Logger
}

// NewCanceller returns a Canceller. db is a pool, or a view of it for transactions that may wait
// for locks. Functions of the observer may be nil.
func NewCanceller(db postgres.Pool, observer Observer, logger *slog.Logger) *Canceller {
	if observer.Advanced == nil {
		observer.Advanced = func(uuid.UUID) {}
	}
	if observer.Due == nil {
		observer.Due = func([]lease.Item) {}
	}
	return &Canceller{db: db, observer: observer, logger: logger}
}

// Run does a job as far as it goes now, and completes it when that is the end. A campaign
// that cannot be cancelled fails the job. ErrSnoozed leaves it queued, and so does a fault
// of the database; job.ErrFinal means that it is final already.
func (c *Canceller) Run(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	outcome, begun, err := c.begin(ctx, ref)
	if err != nil || !begun {
		return outcome, err
	}
	hit("lifecycle.begun", ref)
	var left refusals
	for after := uuid.Nil; ; {
		chunk, err := c.refund(ctx, ref, after)
		if err != nil {
			return job.Outcome{}, err
		}
		if len(chunk.cards) > 0 {
			c.observer.Due(chunk.cards)
		}
		if len(chunk.purchases) > 0 {
			c.observer.Advanced(ref.ID)
		}
		left.add(chunk.refusals)
		if chunk.found < chunkSize {
			break
		}
		after = chunk.last
	}
	return c.complete(ctx, ref, left)
}

func hit(name string, ref job.Ref) {
	failpoint.Hit(name, func() []string { return []string{ref.CampaignID.String()} })
}

// complete completes the job if all is done; otherwise it stores the progress, and which wallets
// it waits for.
func (c *Canceller) complete(ctx context.Context, ref job.Ref, left refusals) (outcome job.Outcome, err error) {
	var done, advanced, isNew bool
	var waits *CancelSnoozed
	err = postgres.InTx(ctx, c.db, func(tx pgx.Tx) error {
		known, err := job.Get(ctx, tx, ref.ID)
		if err != nil {
			return err
		}
		open, err := payment.CountOpen(ctx, tx, ref.CampaignID) // before the refunds: a payment that ends makes one
		if err != nil {
			return err
		}
		now, counts, err := progress(ctx, tx, ref.CampaignID)
		if err != nil {
			return err
		}
		shown := &job.Progress{Refunds: now}
		if done = open == 0 && now.Done+now.Waiting == now.Total; done {
			hit("lifecycle.finalize", ref)
			if outcome.Result, err = resultOf(ref, counts); err != nil {
				return err
			}
			if err := advance(ctx, tx, ref, shown); err != nil { // it stays with the job
				return err
			}
			outcome.ID = ref.ID
			return job.Complete(ctx, tx, &outcome)
		}
		if left.count > 0 {
			if waits, err = left.wait(ctx, tx, ref); err != nil {
				return err
			}
			shown.Waiting = &waits.Blocked
		}
		isNew = reasonOf(known.Progress) != reasonOf(shown)
		advanced = isNew || known.Progress == nil || known.Progress.Refunds == nil || *known.Progress.Refunds != *now
		if !advanced && left.count == 0 {
			return nil
		}
		return advance(ctx, tx, ref, shown)
	})
	switch {
	case err != nil:
		return job.Outcome{}, fmt.Errorf("lifecycle.finalize(%s): %w", ref.CampaignID, err)
	case done:
		return outcome, nil
	case advanced:
		c.observer.Advanced(ref.ID)
	}
	if left.count == 0 {
		return job.Outcome{}, ErrSnoozed
	}
	if isNew { // not at each attempt
		c.logger.Warn("purchases of a cancelled campaign wait for their wallets: an operator has to investigate",
			"campaign", ref.CampaignID, "job", ref.ID, "purchases", left.count, "first", left.first, "error", left.err)
	}
	return job.Outcome{}, waits
}

// reasonOf returns the reason for which a job shows that it waits; empty: it does not wait.
func reasonOf(p *job.Progress) string {
	if p == nil || p.Waiting == nil {
		return ""
	}
	return p.Waiting.Reason
}

// refusals are purchases whose wallets cannot take their money until a person acts.
type refusals struct {
	count int
	first uuid.UUID
	err   error // of the first
}

func (r *refusals) add(more refusals) {
	if r.count == 0 {
		r.first, r.err = more.first, more.err
	}
	r.count += more.count
}

// wait returns how long the job waits for the wallets: half as long as the campaign is cancelled.
// So a worker that knows of no earlier attempt waits as long as one that has made them all.
func (r *refusals) wait(ctx context.Context, tx pgx.Tx, ref job.Ref) (*CancelSnoozed, error) {
	since, now, err := campaign.CancelledFor(ctx, tx, ref.CampaignID)
	if err != nil {
		return nil, err
	}
	after := min(max(since/2, firstRetry), longestRetry)
	return &CancelSnoozed{After: after, Blocked: job.Blocked{RetryAt: now.Add(after).UTC(),
		Reason: fmt.Sprintf("wallets cannot take the money of %d purchases; the first is %s: %s", r.count, r.first, r.err)}}, nil
}

func resultOf(ref job.Ref, counts payment.RefundCounts) ([]byte, error) {
	return json.Marshal(CancelResult{CampaignID: ref.CampaignID, State: campaign.Cancelled, Waiting: counts.ForPeople,
		Refunded: RefundCounts{Wallet: counts.Wallet, Card: counts.Card - counts.ForPeople, External: counts.External}})
}

// progress is how far the cancellation has come, in purchases.
func progress(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (*job.Refunds, payment.RefundCounts, error) {
	counts, err := payment.CountCancelledRefunds(ctx, db, campaignID)
	if err != nil {
		return nil, counts, err
	}
	left, err := countLeft(ctx, db, campaignID)
	if err != nil {
		return nil, counts, err
	}
	total := counts.Total() + left
	return &job.Refunds{Total: total, Done: total - left - counts.UnderWay - counts.ForPeople, Waiting: counts.ForPeople}, counts, nil
}

// advance writes the progress of the job.
func advance(ctx context.Context, tx pgx.Tx, ref job.Ref, now *job.Progress) error {
	var b pgx.Batch
	job.QueueAdvance(&b, ref.ID, now)
	return tx.SendBatch(ctx, &b).Close()
}

// countLeft counts the purchases that are still to be refunded.
func countLeft(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT count(DISTINCT purchase_id) FROM positions WHERE campaign_id = $1 AND state = 'sold'`, campaignID).Scan(&n)
	return n, fault.At(err, "lifecycle.countLeft(%s)", campaignID)
}

// refusal returns why a campaign in this state cannot be cancelled, or its draw voided, or nil.
func refusal(state campaign.State, isVoid bool) error {
	switch {
	case state == campaign.Cancelled:
		return fault.New(fault.StateConflict, "the campaign is cancelled already")
	case isVoid && state == campaign.Drawing, !isVoid && (state == campaign.Pending || state == campaign.Active):
		return nil
	case isVoid && state == campaign.Completed:
		return fault.New(fault.StateConflict, "the campaign is drawn: its draw cannot be voided")
	case isVoid:
		return fault.New(fault.StateConflict, "the campaign is %s and has no draw yet; cancel it instead", state)
	case state == campaign.Drawing:
		return fault.New(fault.StateConflict, "the campaign is drawing and can no longer be cancelled; a stuck draw can be voided")
	}
	return fault.New(fault.StateConflict, "the campaign is %s and can no longer be cancelled", state)
}
