package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
)

// endedSales does what policies.unsold says about campaigns whose sale has ended before
// everything was sold.
func (s *Sweeper) endedSales(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "enqueued": 0, "draws_due": 0, "draws_begun": 0}
	limit := s.settings.Scheduler.BatchSize * s.settings.Scheduler.MaxBatches
	return counts, errors.Join(s.beginDraws(ctx, counts, limit), s.cancelEnded(ctx, counts, limit))
}

// beginDraws ends the sales of campaigns that are drawn at their end, each in a short
// transaction. Those that wait for reservations are found again until these have ended. A
// campaign that fails does not stop the others.
func (s *Sweeper) beginDraws(ctx context.Context, counts Counts, limit int) error {
	due, err := campaign.ToDraw(ctx, s.db, limit)
	if err != nil {
		return err
	}
	counts["draws_due"] = len(due)
	var failures []error
	for _, id := range due {
		end, err := s.seller.EndSale(ctx, id)
		if err == nil && end.Ended {
			counts["draws_begun"]++
			s.draws.Note(end.Messages...)
			_, err = s.enqueue(ctx, end.Messages)
		}
		job.LogFinal(ctx, s.logger, end.Finalized)
		s.holds.Count(inventory.HoldsReleased, end.Holds)
		if end.GivenUp > 0 {
			s.logger.Warn("the draw waits no longer for payments that the provider does not tell of; what is paid after all is refunded",
				"campaign", id, "payments", end.GivenUp)
		}
		failures = append(failures, err)
	}
	return errors.Join(append(failures, ctx.Err())...)
}

// cancelEnded makes a job that cancels the campaign for every campaign whose policy says
// so. The job decides: the end may be put off meanwhile. Campaigns that have such a job are
// found until it is done, and left alone, so they do not fill the batches of a run: it looks
// at the longest ended ones.
func (s *Sweeper) cancelEnded(ctx context.Context, counts Counts, limit int) error {
	ended, err := campaign.EndedUnsold(ctx, s.db, limit)
	if err != nil {
		return err
	}
	counts["found"] = len(ended)
	payload, err := json.Marshal(lifecycle.CancelOrder{By: job.System, Reason: "the sale has ended before everything was sold", IfUnsold: true})
	if err != nil {
		return err
	}
	for _, e := range ended {
		var messages []job.Message
		err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			messages, err = s.insertUnsold(ctx, tx, e, payload)
			return err
		})
		if err != nil {
			return err
		}
		enqueued, err := s.enqueue(ctx, messages)
		counts["enqueued"] += enqueued
		if err != nil {
			return err
		}
	}
	return nil
}

// insertUnsold makes the job of an ended sale, once; and another one when that was given
// up.
func (s *Sweeper) insertUnsold(ctx context.Context, tx pgx.Tx, e campaign.Ended, payload []byte) ([]job.Message, error) {
	made, err := job.Insert(ctx, tx, job.UnsoldRequest(e.ID, e.At, payload, "", s.settings.Retention.Jobs))
	if err != nil || len(made) > 0 {
		return made, err
	}
	queued, err := job.OthersQueued(ctx, tx, job.KindCampaignCancellation, e.ID, uuid.Nil)
	if err != nil || queued {
		return nil, err
	}
	s.logger.Warn("campaign not cancelled at the end of its sale; making a new job", "campaign", e.ID)
	return job.Insert(ctx, tx, job.UnsoldRequest(e.ID, e.At, payload, "/"+uuid.NewString(), s.settings.Retention.Jobs))
}

// expiredHolds ends holds that are over, with a short transaction for each campaign. A
// campaign that fails does not stop the others.
func (s *Sweeper) expiredHolds(ctx context.Context) (Counts, error) {
	counts := Counts{"campaigns": 0, "expired": 0, "freed": 0, "failed": 0}
	var failures []error
	broken := []uuid.UUID{} // campaigns that failed: not to be found again in this run
	err := s.batches(func(limit int) (int, error) {
		campaigns, err := inventory.CampaignsWithHoldsOver(ctx, s.db, broken, limit)
		if err != nil {
			return 0, err
		}
		counts["campaigns"] += len(campaigns)
		done, failed := 0, false
		for _, id := range campaigns {
			holds, positions, err := inventory.ExpireHolds(ctx, s.db, id, limit)
			if err != nil {
				broken = append(broken, id)
				counts["failed"]++
				failed = true
				failures = append(failures, err)
				continue
			}
			done += holds
			counts["expired"] += holds
			counts["freed"] += positions
		}
		s.holds.Count(inventory.HoldsExpired, done)
		if failed { // holds of failed campaigns filled the batch: there may be more of others
			done = max(done, limit)
		}
		return done, ctx.Err()
	})
	return counts, errors.Join(append(failures, err)...)
}

// expiredReservations gives payments up whose deadline is over and that nobody looks at.
// From then on they go their own way: the provider is asked, and its answer decides what
// becomes of their positions.
func (s *Sweeper) expiredReservations(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "expired": 0}
	err := s.batches(func(limit int) (int, error) {
		n, err := sale.ExpireReservations(ctx, s.db, limit)
		counts["found"] += n
		counts["expired"] += n
		return n, err
	})
	return counts, err
}

// staleLocks releases execution locks that were not renewed for longer than the lease.
// The sweep lost-jobs finds the draw jobs of their holders.
func (s *Sweeper) staleLocks(ctx context.Context) (Counts, error) {
	counts := Counts{"released": 0}
	err := s.batches(func(limit int) (int, error) {
		released, err := campaign.ReleaseStale(ctx, s.db, cmp.Or(s.settings.Draw.Lease, drawing.Lease), limit)
		for _, id := range released {
			s.logger.Warn("execution lock released: its worker no longer renewed it", "campaign", id)
		}
		counts["released"] += len(released)
		return len(released), err
	})
	return counts, err
}

// stuckDraws makes a new draw job for every campaign that has been drawing for a while
// without an execution lock and without a queued job: its job was given up.
func (s *Sweeper) stuckDraws(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "enqueued": 0}
	err := s.batches(func(limit int) (int, error) {
		var messages []job.Message
		err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
			stuck, err := lockStuck(ctx, tx, cmp.Or(s.settings.Sweeps.StuckDrawsAfter, 30*time.Second), limit)
			if err != nil {
				return err
			}
			for _, id := range stuck {
				s.logger.Warn("campaign not drawn; making a new draw job", "campaign", id)
				made, err := job.Insert(ctx, tx, job.DrawRequest(id, job.BySweep, "/"+uuid.NewString(), s.settings.Retention.Jobs, job.Origin{}))
				if err != nil {
					return err
				}
				messages = append(messages, made...)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		s.draws.Note(messages...)
		counts["found"] += len(messages)
		enqueued, err := s.enqueue(ctx, messages)
		counts["enqueued"] += enqueued
		return len(messages), err
	})
	return counts, err
}

// lockStuck locks and returns sold-out campaigns that have no lock and no queued job. It
// looks for queued jobs in the outbox: every queued job is in a message, and there are
// few messages for draws.
func lockStuck(ctx context.Context, tx pgx.Tx, after time.Duration, limit int) ([]uuid.UUID, error) {
	stuck, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT c.id FROM campaigns c
		WHERE c.state = 'drawing' AND c.draw_started_at < clock_timestamp() - $1 * interval '1 second'
		  AND c.execution_lock_id IS NULL
		  AND NOT EXISTS (
			SELECT FROM outbox_messages m CROSS JOIN LATERAL unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT campaign_id, state FROM jobs WHERE id = i.id) j
			WHERE m.kind = 'draw' AND j.state = 'queued' AND j.campaign_id = c.id)
		ORDER BY c.draw_started_at LIMIT $2 FOR NO KEY UPDATE OF c SKIP LOCKED`, after.Seconds(), limit)
	return stuck, fault.At(err, "recovery.lockStuck")
}
