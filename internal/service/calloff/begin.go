package calloff

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

// begin cancels the campaign, unless this job has done so before. begun is false when the
// job was refused, which is its outcome.
func (c *Canceller) begin(ctx context.Context, ref job.Ref) (outcome job.Outcome, begun bool, err error) {
	var given []payment.Ref
	var first bool
	err = postgres.InTx(ctx, c.db, func(tx pgx.Tx) error {
		given, first = nil, false
		why, resumed, err := c.admit(ctx, tx, ref)
		switch {
		case err != nil:
			return err
		case why != nil:
			outcome = job.Refused(ref.ID, why)
			return job.Settle(ctx, tx, outcome)
		}
		begun, first = true, !resumed
		if resumed {
			return nil
		}
		return c.cancel(ctx, tx, ref, &given)
	})
	if err != nil {
		return job.Outcome{}, false, fmt.Errorf("calloff.begin(%s): %w", ref.CampaignID, err)
	}
	if first {
		c.observer.GivenUp(given)
		c.observer.Advanced(ref.ID)
	}
	return outcome, begun, nil
}

// admit locks the campaign and decides: why the job is refused, or whether it has begun
// already.
func (c *Canceller) admit(ctx context.Context, tx pgx.Tx, ref job.Ref) (why error, resumed bool, err error) { //nolint:revive // a refusal is no failure
	if err := campaign.Lock(ctx, tx, ref.CampaignID); err != nil {
		if fault.CodeOf(err) == fault.NotFound {
			return err, false, nil
		}
		return nil, false, err
	}
	known, err := job.Get(ctx, tx, ref.ID)
	if err != nil {
		return nil, false, err
	}
	if known.State.Final() {
		return nil, false, job.ErrSettled
	}
	if known.Progress != nil && known.Progress.Refunds != nil {
		return nil, true, nil
	}
	now, err := campaign.Get(ctx, tx, ref.CampaignID)
	if err != nil {
		return nil, false, err
	}
	if now.State == campaign.Cancelled {
		left, err := c.abandoned(ctx, tx, ref)
		if err != nil || left {
			return nil, left, err
		}
	}
	if why := refusal(now.State); why != nil {
		return why, false, nil
	}
	return nil, false, nil
}

// abandoned reports whether a cancelled campaign has something left to be given back and
// no other job that does it: the one before was given up.
func (c *Canceller) abandoned(ctx context.Context, tx pgx.Tx, ref job.Ref) (bool, error) {
	left, err := countLeft(ctx, tx, ref.CampaignID)
	if err != nil || left == 0 {
		return false, err
	}
	others, err := job.OthersQueued(ctx, tx, job.KindCampaignCancellation, ref.CampaignID, ref.ID)
	return !others, err
}

// cancel is what begin writes: payments, holds and their positions, counters and state,
// the job.
func (c *Canceller) cancel(ctx context.Context, tx pgx.Tx, ref job.Ref, given *[]payment.Ref) error {
	order, err := orderOf(ctx, tx, ref)
	if err != nil {
		return err
	}
	var held []*inventory.Hold
	var find pgx.Batch
	inventory.QueueFindActive(&find, ref.CampaignID, &held)
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
		for _, h := range held {
			changes.Add(ref.CampaignID, campaign.Change{Reserved: -len(h.Positions)})
		}
		inventory.QueueRelease(&b, held)
		changes.QueueBack(&b)
	}
	campaign.QueueCancel(&b, ref.CampaignID, order.By, order.Reason)
	job.QueueAdvance(&b, ref.ID, &job.Progress{Refunds: &job.Refunds{Total: left}})
	return tx.SendBatch(ctx, &b).Close()
}

// orderOf reads the payload of a job.
func orderOf(ctx context.Context, tx pgx.Tx, ref job.Ref) (o Order, err error) {
	payload, err := job.Payload(ctx, tx, ref.ID)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(payload, &o); err != nil {
		return o, fmt.Errorf("the payload of job %s: %w", ref.ID, err)
	}
	return o, nil
}
