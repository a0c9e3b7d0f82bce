package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// job was rejected, which is its outcome. A *CancelWaiting says that the void of a draw is announced.
func (c *Canceller) begin(ctx context.Context, ref job.Ref) (outcome job.Outcome, begun bool, err error) {
	var given []payment.Ref
	var from campaign.State
	var resumed bool
	var waits *CancelWaiting
	err = postgres.InTx(ctx, c.db, func(tx pgx.Tx) (err error) {
		given, begun, waits = nil, false, nil
		from, resumed, err = admit(ctx, tx, ref)
		if wait, ok := errors.AsType[*CancelWaiting](err); ok {
			waits = wait
			return advance(ctx, tx, ref, &job.Progress{Waiting: &waits.Waiting})
		}
		if refusal, ok := errors.AsType[*fault.Error](err); ok {
			outcome = job.Refused(ref.ID, refusal)
			return job.Finalize(ctx, tx, &outcome)
		}
		if err != nil {
			return err
		}
		begun = true
		if resumed {
			return nil
		}
		return cancel(ctx, tx, ref, &given)
	})
	if err != nil {
		return job.Outcome{}, false, fmt.Errorf("lifecycle.begin(%s): %w", ref.CampaignID, err)
	}
	if waits != nil {
		c.observer.Advanced(ref.ID)
		return job.Outcome{}, false, waits
	}
	if begun && !resumed {
		c.logger.Info("campaign cancelled", "campaign", ref.CampaignID, "job", ref.ID, "from", from, "to", campaign.Cancelled)
		c.observer.Due(payment.Items(given))
		c.observer.Advanced(ref.ID)
	}
	return outcome, begun, nil
}

// admit locks the campaign, and returns its state and whether the job has begun already. It returns an
// Error when the campaign cannot be cancelled, and ErrWaiting or a *CancelWaiting when it cannot be
// yet.
func admit(ctx context.Context, tx pgx.Tx, ref job.Ref) (from campaign.State, resumed bool, err error) {
	if err := campaign.Lock(ctx, tx, ref.CampaignID); err != nil {
		return from, false, err
	}
	known, err := job.Get(ctx, tx, ref.ID)
	if err != nil {
		return from, false, err
	}
	if known.State.Final() {
		return from, false, job.ErrFinal
	}
	if known.Progress != nil && known.Progress.Refunds != nil {
		return from, true, nil
	}
	now, err := campaign.Get(ctx, tx, ref.CampaignID)
	if err != nil {
		return from, false, err
	}
	from = now.State
	if from == campaign.Cancelled {
		left, err := abandoned(ctx, tx, ref)
		if err != nil || left {
			return from, left, err
		}
	}
	order, err := orderOf(ctx, tx, ref)
	if err != nil {
		return from, false, err
	}
	if err := refusal(now.State, order.Void); err != nil {
		return from, false, err
	}
	switch {
	case order.Void:
		return from, false, admitVoid(ctx, tx, ref.CampaignID)
	case order.IfUnsold:
		return from, false, checkUnsold(ctx, tx, ref)
	}
	return from, false, nil
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
// out: that is ErrWaiting.
func checkUnsold(ctx context.Context, tx pgx.Tx, ref job.Ref) error {
	ended, mayBeSoldOut, err := campaign.IsEndedUnsold(ctx, tx, ref.CampaignID)
	switch {
	case err != nil:
		return err
	case !ended:
		return fault.New(fault.StateConflict, "the end of the sale was postponed")
	case mayBeSoldOut:
		return ErrWaiting
	}
	return nil
}

// cancel is what begin writes: payments, holds and their positions, counters and state,
// the job.
func cancel(ctx context.Context, tx pgx.Tx, ref job.Ref, given *[]payment.Ref) error {
	order, err := orderOf(ctx, tx, ref)
	if err != nil {
		return err
	}
	var held []*inventory.Hold
	var find pgx.Batch
	inventory.QueueFindActive(&find, ref.CampaignID, inventory.AllHolds, &held)
	if err := tx.SendBatch(ctx, &find).Close(); err != nil {
		return err
	}
	left, err := countLeft(ctx, tx, ref.CampaignID)
	if err != nil {
		return err
	}
	var b pgx.Batch
	payment.QueueGiveUpCampaign(&b, ref.CampaignID, given)
	if len(held) > 0 {
		changes := make(campaign.Changes)
		inventory.QueueRelease(&b, held, changes)
		changes.QueueBack(&b)
	}
	if order.Void {
		campaign.QueueVoid(&b, ref.CampaignID, order.By, order.Reason)
		drawing.QueueEndWait(&b, ref.CampaignID)
	} else {
		campaign.QueueCancel(&b, ref.CampaignID, order.By, order.Reason)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	return endWaits(ctx, tx, ref, *given, left)
}

// endWaits records that the given-up payments wait for their buyers no more, and the progress
// of the job. It locks all these jobs at once, in their order.
func endWaits(ctx context.Context, tx pgx.Tx, ref job.Ref, given []payment.Ref, left int) error {
	purchases, jobs := make([]uuid.UUID, len(given)), make([]uuid.UUID, len(given))
	for i, p := range given {
		purchases[i], jobs[i] = p.PurchaseID, p.JobID
	}
	var b pgx.Batch
	if len(given) > 0 {
		purchase.QueueNotAwaiting(&b, purchases)
	}
	job.QueueLock(&b, append(jobs[:len(jobs):len(jobs)], ref.ID))
	if len(given) > 0 {
		job.QueueNotAwaiting(&b, jobs)
	}
	job.QueueAdvance(&b, ref.ID, &job.Progress{Refunds: &job.Refunds{Total: left}})
	return tx.SendBatch(ctx, &b).Close()
}

// orderOf reads the payload of a job.
func orderOf(ctx context.Context, tx pgx.Tx, ref job.Ref) (o CancelOrder, err error) {
	payload, err := job.Payload(ctx, tx, ref.ID)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(payload, &o); err != nil {
		return o, fmt.Errorf("the payload of job %s: %w", ref.ID, err)
	}
	return o, nil
}

// stuckAfter is how long after its begin, or after its round was due, a draw is stuck. Triggers
// enforce the same, and that a void is announced 168 hours ahead.
const stuckAfter = 24 * time.Hour

// announced is the wait of a void whose announcement still runs: the round may still come. A retry
// comes after longestRetry at most, so that a job whose draw has come, or is void, is final soon.
func announced(now, voidsAt time.Time) *CancelWaiting {
	return &CancelWaiting{After: min(voidsAt.Sub(now), longestRetry), Waiting: job.Waiting{RetryAt: voidsAt.UTC(),
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
