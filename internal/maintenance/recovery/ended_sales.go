package recovery

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/service/campaigncancel"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
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
	payload, err := json.Marshal(campaigncancel.Order{By: job.System, Reason: "the sale has ended before everything was sold", IfUnsold: true})
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
