package draw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/seal"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// ErrBusy means that another worker has the execution lock: try again later.
var ErrBusy = errors.New("draw: another worker is drawing this campaign")

// Drawer draws campaigns.
type Drawer struct {
	db     postgres.Pool
	key    seal.Key
	lease  time.Duration
	limit  time.Duration
	logger *slog.Logger

	endSale func(ctx context.Context, campaignID uuid.UUID) (ended bool, err error) // nil: only sold-out campaigns are drawn
}

// RowWait is how long an attempt should wait for a campaign that is locked elsewhere:
// the other draws of a process go on.
const RowWait = 100 * time.Millisecond

// NewDrawer returns a Drawer; db is a pool, or a view of it for transactions that may
// wait for locks; key decrypts the campaigns' secrets.
func NewDrawer(db postgres.Pool, key seal.Key, settings config.Draw, logger *slog.Logger) *Drawer {
	return &Drawer{db: db, key: key, lease: settings.Lease, limit: settings.Timeout, logger: logger}
}

// EndSales lets jobs end the sales of campaigns whose end has come and whose rules say that
// what is sold by then is drawn. end does that, in a transaction of its own, and does
// nothing about any other campaign.
func (d *Drawer) EndSales(end func(ctx context.Context, campaignID uuid.UUID) (ended bool, err error)) {
	d.endSale = end
}

// Run draws the campaign of a job and settles the job. When the campaign is drawn
// already, the job gets the existing result; when it is not sold out, the job fails.
// ErrBusy and campaign.ErrFenced (another worker took over) leave the job queued.
// job.ErrSettled means that the job is final already.
func (d *Drawer) Run(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	known, err := job.Get(ctx, d.db, ref.ID)
	if err != nil {
		return job.Outcome{}, err
	}
	if known.State.Final() { // a late delivery
		return job.Outcome{}, job.ErrSettled
	}
	var execution campaign.Execution
	var claimed bool
	err = postgres.InTx(ctx, d.db, func(tx pgx.Tx) (err error) {
		execution, claimed, err = campaign.Claim(ctx, tx, ref.CampaignID, d.lease)
		return err
	})
	if err != nil {
		return job.Outcome{}, err
	}
	if claimed {
		return d.execute(ctx, ref, execution)
	}
	return d.settleUnclaimed(ctx, ref)
}

// settleUnclaimed settles a job whose campaign could not be claimed.
func (d *Drawer) settleUnclaimed(ctx context.Context, ref job.Ref) (job.Outcome, error) {
	result, drawn, err := Get(ctx, d.db, ref.CampaignID)
	if err != nil {
		return job.Outcome{}, err
	}
	outcome := job.Outcome{ID: ref.ID}
	if drawn {
		if outcome.Result, err = json.Marshal(result); err != nil {
			return job.Outcome{}, fmt.Errorf("draw.Run: %w", err)
		}
	} else {
		refusal, err := d.refusal(ctx, ref.CampaignID)
		if err != nil {
			return job.Outcome{}, err
		}
		problem := job.ProblemOf(refusal)
		outcome.Problem = &problem
	}
	err = postgres.InTx(ctx, d.db, func(tx pgx.Tx) error { return job.Settle(ctx, tx, outcome) })
	return outcome, err
}

// refusal returns why a campaign cannot be drawn, or ErrBusy.
func (d *Drawer) refusal(ctx context.Context, id uuid.UUID) (refusal *fault.Error, err error) {
	c, err := campaign.Get(ctx, d.db, id)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return fault.From(err), nil
	case err != nil:
		return nil, err
	case c.State == campaign.Drawing, c.State == campaign.Completed: // completed after the look for a result
		return nil, ErrBusy
	case c.State == campaign.Cancelled:
		return fault.New(fault.CampaignNotActive, "the campaign is cancelled"), nil
	case c.State == campaign.Active && c.DrawsAt != nil && d.endSale != nil:
		ended, err := d.endSale(ctx, id)
		if err != nil {
			return nil, err
		}
		if ended {
			return nil, ErrBusy // the next attempt draws it
		}
	}
	return notSoldOut(c), nil
}

// notSoldOut says what a campaign on sale waits for before it is drawn.
func notSoldOut(c campaign.Campaign) *fault.Error {
	if c.DrawsAt == nil {
		return fault.New(fault.NotSoldOut, "%d of %d positions are sold", c.Counts.Sold, c.Counts.Total)
	}
	return fault.New(fault.NotSoldOut, "%d of %d positions are sold; the draw begins when all are, or when the sale has ended at %s and the %d reserved ones are paid or free",
		c.Counts.Sold, c.Counts.Total, c.DrawsAt.UTC().Format(time.RFC3339), c.Counts.Reserved)
}
