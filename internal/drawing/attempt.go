package drawing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
)

// attempt is one attempt at a draw, under a claim on it.
type attempt struct {
	*Drawer
	plan
	ref       job.Ref
	execution campaign.Execution
	log       *slog.Logger // names campaign, job and request

	latest beacon.Round // has confirmed the clock; zero: not asked for
	frozen Freeze
	secret *fairdraw.Hash      // nil: not opened yet
	sold   []fairdraw.SoldLine // the list under the frozen root; nil: not read yet
}

// execute does the steps of a draw under a claim. When they do not come to the end it
// releases the lock.
func (d *Drawer) execute(ctx context.Context, ref job.Ref, execution campaign.Execution, logger *slog.Logger) (job.Outcome, error) {
	began := time.Now()
	defer func() {
		held := time.Since(began)
		d.metrics.held.Observe(held.Seconds())
		logger.Debug("execution lock released or lost", slog.Int64("version", execution.Version), telemetry.Took(held))
	}()
	held, stop := d.renewClaim(ctx, execution)
	defer stop()
	a := &attempt{Drawer: d, ref: ref, execution: execution, log: logger}
	a.hit("draw.claimed")
	outcome, err := a.steps(ctx, held)
	if err == nil {
		a.hit("draw.recorded")
		return outcome, nil
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.lease)
	defer cancel()
	if wait, ok := errors.AsType[*Snoozed](err); ok {
		return job.Outcome{}, a.snooze(release, wait)
	}
	lost := postgres.RetryLocked(release, func() error { // the row may be locked for a moment
		return postgres.InTx(release, d.db, func(tx pgx.Tx) error { return execution.Release(release, tx) })
	})
	if lost != nil && !errors.Is(lost, campaign.ErrFenced) {
		logger.Warn("execution lock not released; it ends with its lease", "error", lost)
	}
	return job.Outcome{}, err
}

// steps does every step whose result is not stored yet, while the claim is held. Each may
// be the first of an attempt, as the one before may have ended with a worker that died.
// The last one gives the claim back: a renewal beside its commit finds the claim lost, and
// must not cut the commit off. There the fence alone decides.
func (a *attempt) steps(ctx, held context.Context) (outcome job.Outcome, err error) {
	if a.plan, err = planOf(held, a.db, a.ref.CampaignID); err != nil {
		return outcome, err
	}
	if err := a.freeze(held); err != nil {
		return outcome, err
	}
	randomness, err := a.await(held)
	if err != nil {
		return outcome, err
	}
	winners, err := a.choose(held, randomness)
	if err != nil {
		return outcome, err
	}
	a.hit("draw.record")
	return a.record(ctx, randomness, winners)
}

// snooze stores what the draw waits for, and returns it. The same commit releases the claim.
func (a *attempt) snooze(ctx context.Context, wait *Snoozed) error {
	err := postgres.RetryLocked(ctx, func() error {
		return postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
			if err := a.execution.Release(ctx, tx); err != nil {
				return err
			}
			if err := SetWait(ctx, tx, a.ref.CampaignID, wait.Blocked); err != nil {
				return err
			}
			var b pgx.Batch
			job.QueueWaiting(&b, []uuid.UUID{a.ref.ID}, wait.Blocked)
			return tx.SendBatch(ctx, &b).Close()
		})
	})
	if err != nil {
		return fmt.Errorf("drawing.snooze(%s): %w", a.ref.CampaignID, err)
	}
	a.log.InfoContext(telemetry.Sampled(""), "draw waits", "reason", wait.Reason, "until", wait.RetryAt) //nolint:contextcheck // it only says how the line is written
	return wait
}

// fenced runs a transaction that begins with the fence: it fails with campaign.ErrFenced
// when the claim is lost, and the campaign stays locked until its end.
func (a *attempt) fenced(ctx context.Context, do func(tx pgx.Tx) error) error {
	return postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		if err := a.execution.Renew(ctx, tx); err != nil {
			return err
		}
		return do(tx)
	})
}

func (a *attempt) hit(name string) {
	failpoint.Hit(name, func() []string { return []string{a.ref.CampaignID.String()} })
}

// renewClaim renews the claim three times per lease. The context it returns ends when
// the claim is lost.
func (d *Drawer) renewClaim(ctx context.Context, execution campaign.Execution) (held context.Context, stop func()) {
	held, lose := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(d.lease / 3)
		defer ticker.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-ticker.C:
			}
			err := postgres.InTx(held, d.db, func(tx pgx.Tx) error { return execution.Renew(held, tx) })
			if errors.Is(err, campaign.ErrFenced) {
				lose(err)
				return
			} // try again after another error; the fence decides in the end
		}
	}()
	return held, func() {
		lose(nil)
		<-done
	}
}
