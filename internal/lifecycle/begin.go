package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// begin cancels the campaign, unless this job has done so before. begun is false when the
// job was rejected, which is its outcome. A *CancelSnoozed says that the void of a draw is announced.
func (c *Canceller) begin(ctx context.Context, ref job.Ref) (outcome job.Outcome, begun bool, err error) {
	var given []payment.Ref
	var a admission
	var waits *CancelSnoozed
	err = postgres.InTx(ctx, c.db, func(tx pgx.Tx) (err error) {
		given, begun, waits = nil, false, nil
		a, err = admit(ctx, tx, ref)
		if wait, ok := errors.AsType[*CancelSnoozed](err); ok {
			waits = wait
			return advance(ctx, tx, ref, &job.Progress{Waiting: &waits.Blocked})
		}
		if refusal, ok := errors.AsType[*fault.Error](err); ok {
			outcome = job.Refused(ref.ID, refusal)
			return job.Complete(ctx, tx, &outcome)
		}
		if begun = err == nil; !begun || a.resumed {
			return err
		}
		given, err = cancel(ctx, tx, ref, a.order)
		return err
	})
	switch {
	case err != nil:
		return job.Outcome{}, false, fmt.Errorf("lifecycle.begin(%s): %w", ref.CampaignID, err)
	case waits != nil:
		c.observer.Advanced(ref.ID)
		return job.Outcome{}, false, waits
	case begun && !a.resumed:
		c.logger.Info("campaign cancelled", "campaign", ref.CampaignID, "job", ref.ID, "from", a.from, "to", campaign.Cancelled)
		c.observer.Due(payment.Items(given))
		c.observer.Advanced(ref.ID)
	}
	return outcome, begun, nil
}

// admission is what is found when a job begins.
type admission struct {
	order   CancelOrder
	from    campaign.State
	resumed bool // the campaign is cancelled, and purchases are left to be refunded
}

// admit locks the campaign. It returns an Error when the campaign cannot be cancelled, and
// ErrSnoozed or a *CancelSnoozed when it cannot be yet.
func admit(ctx context.Context, tx pgx.Tx, ref job.Ref) (a admission, err error) {
	if err := campaign.Lock(ctx, tx, ref.CampaignID); err != nil {
		return a, err
	}
	known, err := job.Get(ctx, tx, ref.ID)
	if err != nil {
		return a, err
	}
	if known.State.Final() {
		return a, job.ErrFinal
	}
	if a.resumed = known.Progress != nil && known.Progress.Refunds != nil; a.resumed {
		return a, nil
	}
	now, err := campaign.Get(ctx, tx, ref.CampaignID)
	if err != nil {
		return a, err
	}
	if a.from = now.State; a.from == campaign.Cancelled {
		if a.resumed, err = abandoned(ctx, tx, ref); err != nil || a.resumed {
			return a, err
		}
	}
	payload, err := job.Payload(ctx, tx, ref.ID)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(payload, &a.order); err != nil {
		return a, fmt.Errorf("the payload of job %s: %w", ref.ID, err)
	}
	if err := refusal(a.from, a.order.Void); err != nil {
		return a, err
	}
	switch {
	case a.order.Void:
		return a, admitVoid(ctx, tx, ref.CampaignID)
	case a.order.IfUnsold:
		return a, checkUnsold(ctx, tx, ref)
	}
	return a, nil
}

// abandoned reports whether a cancelled campaign has purchases left to refund and no other
// job that does it: the one before was given up.
func abandoned(ctx context.Context, tx pgx.Tx, ref job.Ref) (bool, error) {
	left, err := countLeft(ctx, tx, ref.CampaignID)
	if err != nil || left == 0 {
		return false, err
	}
	others, err := job.OthersQueued(ctx, tx, job.KindCampaignCancellation, ref.CampaignID, ref.ID)
	return !others, err
}

// checkUnsold rejects a job of the sweep ended-sales when the sale has not ended, because its
// end was moved. When every position is sold or being paid, the campaign may still be sold
// out: that is ErrSnoozed.
func checkUnsold(ctx context.Context, tx pgx.Tx, ref job.Ref) error {
	ended, mayBeSoldOut, err := campaign.IsEndedUnsold(ctx, tx, ref.CampaignID)
	switch {
	case err != nil:
		return err
	case !ended:
		return fault.New(fault.StateConflict, "the end of the sale was postponed")
	case mayBeSoldOut:
		return ErrSnoozed
	}
	return nil
}

// cancel is what begin writes: payments, holds and their positions, counters and state,
// the job. It returns the payments that are given up.
func cancel(ctx context.Context, tx pgx.Tx, ref job.Ref, order CancelOrder) (given []payment.Ref, err error) {
	var held []*inventory.Hold
	var find pgx.Batch
	inventory.QueueFindActive(&find, ref.CampaignID, inventory.AllHolds, &held)
	if err := tx.SendBatch(ctx, &find).Close(); err != nil {
		return nil, err
	}
	left, err := countLeft(ctx, tx, ref.CampaignID)
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	payment.QueueGiveUpCampaign(&b, ref.CampaignID, &given)
	if len(held) > 0 {
		changes := make(campaign.Changes)
		inventory.QueueRelease(&b, held, changes)
		changes.QueueBack(&b)
	}
	campaign.QueueCancel(&b, ref.CampaignID, order.By, order.Reason, order.Void)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	if order.Void {
		if err := drawing.EndWait(ctx, tx, ref.CampaignID); err != nil {
			return nil, err
		}
	}
	return given, endWaits(ctx, tx, ref, given, left)
}

// endWaits records that the given-up payments wait for their buyers no more, and the progress
// of the job. It locks all these jobs at once, in their order.
func endWaits(ctx context.Context, tx pgx.Tx, ref job.Ref, given []payment.Ref, left int) error {
	purchases := payment.PurchasesOf(given)
	var b pgx.Batch
	if len(given) > 0 {
		purchase.QueueNotAwaiting(&b, purchases)
	}
	job.QueueLock(&b, append(slices.Clone(purchases), ref.ID))
	if len(given) > 0 {
		job.QueueNotAwaiting(&b, purchases)
	}
	job.QueueAdvance(&b, ref.ID, &job.Progress{Refunds: &job.Refunds{Total: left}})
	return tx.SendBatch(ctx, &b).Close()
}

// stuckAfter is how long after its begin, or after its round was due, a draw is stuck. Triggers
// enforce the same, and that a void is announced 168 hours ahead.
const stuckAfter = 24 * time.Hour

// announced is the wait of a void whose announcement still runs: the round may still come. A retry
// comes after longestRetry at most, so that a job whose draw has come, or is void, is final soon.
func announced(now, voidsAt time.Time) *CancelSnoozed {
	return &CancelSnoozed{After: min(voidsAt.Sub(now), longestRetry), Blocked: job.Blocked{RetryAt: voidsAt.UTC(),
		Reason: "the void of the draw is announced for " + voidsAt.UTC().Format(time.RFC3339) + "; until then the round of the beacon draws"}}
}

// admitVoid returns nil if a draw under way may be voided now. With a beacon the operator could
// know the outcome, or withhold it from its own system: so that draw is voided only when its
// round has not come in all the time of an announcement, which admitVoid stores.
func admitVoid(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	s, err := drawing.StuckOf(ctx, tx, id)
	if err != nil {
		return err
	}
	stuckAt, what := s.StartedAt.Add(stuckAfter), "the draw began"
	if s.RoundDueAt != nil {
		stuckAt, what = s.RoundDueAt.Add(stuckAfter), "the round of the beacon was due"
	}
	switch {
	case s.RoundKnown:
		return fault.New(fault.StateConflict, "the round of the beacon is known and determines the winners; the draw cannot be voided")
	case s.Now.Before(stuckAt):
		no := fault.New(fault.StateConflict, "the draw can be voided from %s on, 24 hours after %s", stuckAt.UTC().Format(time.RFC3339), what)
		no.RetryAt = stuckAt.UTC()
		return no
	case s.RoundDueAt == nil:
		return nil
	case s.VoidsAt == nil:
		at, err := drawing.AnnounceVoid(ctx, tx, id)
		if err != nil {
			return err
		}
		return announced(s.Now, at)
	case s.Now.Before(*s.VoidsAt):
		return announced(s.Now, *s.VoidsAt)
	}
	return nil
}
