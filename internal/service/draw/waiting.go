package draw

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/campaign"
	"triprize/internal/store/drawrecord"
	"triprize/internal/store/job"
)

// Waiting is why a draw cannot go on now. It is no failure: the campaign is drawing, and
// nothing is held meanwhile.
type Waiting struct {
	Reason  string
	RetryAt time.Time     // by the database's clock
	After   time.Duration // from now until then, for clocks that are wrong

	cause string // see metrics
}

// Error returns the reason.
func (w *Waiting) Error() string {
	return fmt.Sprintf("draw: waiting until %s: %s", w.RetryAt.UTC().Format(time.RFC3339), w.Reason)
}

// The times between two attempts to get what should be there.
const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
)

func waiting(cause, reason string, now time.Time, after time.Duration) *Waiting {
	return &Waiting{Reason: reason, RetryAt: now.Add(after), After: after, cause: cause}
}

// retry returns how long to wait for what was due at a time: half as long as it is late,
// within the bounds. So a worker that knows of no earlier attempt waits as long as one
// that has made them all.
func retry(due, now time.Time) time.Duration { return clamp(now.Sub(due)/2, firstRetry, longestRetry) }

func clamp(d, least, most time.Duration) time.Duration { return min(max(d, least), most) }

// lookAhead returns a wait when it is known, without a claim, that the campaign's round is
// not due, or that the round is due and nobody can be asked for it now. Then nothing is
// claimed for it.
func (d *Drawer) lookAhead(ctx context.Context, id uuid.UUID) (*Waiting, error) {
	frozen, ok, err := drawrecord.FreezeOf(ctx, d.db, id)
	if err != nil || !ok || frozen.Round == nil {
		return nil, err
	}
	plan, err := planOf(ctx, d.db, id)
	if err != nil || plan.rules.Beacon == nil {
		return nil, err
	}
	if _, known, err := drawrecord.RoundOf(ctx, d.db, plan.chain, *frozen.Round); err != nil || known {
		return nil, err
	}
	now, err := drawrecord.Now(ctx, d.db)
	if err != nil {
		return nil, err
	}
	due := plan.chain.DueAt(*frozen.Round)
	if !now.Before(due) {
		if no := d.questions.refused(plan.rules.Beacon.ChainHash); no != nil && d.options.Beacon != nil {
			return notAsked(*frozen.Round, no, due, now), nil
		}
		return nil, nil
	}
	return notDue(*frozen.Round, due, now), nil
}

func notDue(round uint64, due, now time.Time) *Waiting {
	return waiting(causeBeacon, fmt.Sprintf("round %d of the beacon decides, and it is not due yet", round), now, due.Sub(now))
}

// putOff notes what the draw waits for and returns it. A claim is given back in the same
// commit. A campaign that is not drawing any more has nothing to wait for: then the
// answer is ErrBusy, and the next attempt finds out more.
func (d *Drawer) putOff(ctx context.Context, ref job.Ref, execution *campaign.Execution, wait *Waiting, logger *slog.Logger) error {
	drawing := true
	err := postgres.Persist(ctx, func() error {
		return postgres.InTx(ctx, d.db, func(tx pgx.Tx) (err error) {
			if execution != nil {
				err = execution.Release(ctx, tx)
			} else {
				drawing, err = campaign.LockDrawing(ctx, tx, ref.CampaignID)
			}
			if err != nil || !drawing {
				return err
			}
			if err := drawrecord.NoteWait(ctx, tx, ref.CampaignID, drawrecord.Wait{Reason: wait.Reason, RetryAt: wait.RetryAt}); err != nil {
				return err
			}
			var b pgx.Batch
			job.QueueWaiting(&b, []uuid.UUID{ref.ID}, job.Waiting{Reason: wait.Reason, RetryAt: wait.RetryAt})
			return tx.SendBatch(ctx, &b).Close()
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("draw.putOff(%s): %w", ref.CampaignID, err)
	case !drawing:
		return ErrBusy
	}
	logger.InfoContext(telemetry.Sampled(""), "draw waits", "reason", wait.Reason, "until", wait.RetryAt) //nolint:contextcheck // it only says how the line is written
	return wait
}
