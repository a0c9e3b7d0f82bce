package recovery

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/service/calloff"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// endedSales makes a job that cancels the campaign for every campaign whose policy says
// so, when its sale has ended before everything was sold. The job decides: the end may be
// put off meanwhile. Campaigns that have such a job are found until it is done, and left
// alone, so they do not fill the batches of a run: it looks at the longest ended ones.
func (s *Sweeper) endedSales(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "enqueued": 0}
	limit := s.settings.Scheduler.BatchSize * s.settings.Scheduler.MaxBatches
	ended, err := campaign.EndedUnsold(ctx, s.db, limit)
	if err != nil {
		return counts, err
	}
	counts["found"] = len(ended)
	payload, err := json.Marshal(calloff.Order{By: job.System, Reason: "the sale has ended before everything was sold", IfUnsold: true})
	if err != nil {
		return counts, err
	}
	for _, e := range ended {
		var messages []outbox.Message
		err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
			messages, err = s.insertUnsold(ctx, tx, e, payload)
			return err
		})
		if err != nil {
			return counts, err
		}
		enqueued, err := s.enqueue(ctx, messages)
		counts["enqueued"] += enqueued
		if err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// insertUnsold makes the job of an ended sale, once; and another one when that was given
// up.
func (s *Sweeper) insertUnsold(ctx context.Context, tx pgx.Tx, e campaign.Ended, payload []byte) ([]outbox.Message, error) {
	made, err := outbox.Insert(ctx, tx, job.UnsoldRequest(e.ID, e.At, payload, "", s.settings.Retention.Jobs))
	if err != nil || len(made) > 0 {
		return made, err
	}
	queued, err := job.OthersQueued(ctx, tx, job.KindCampaignCancellation, e.ID, uuid.Nil)
	if err != nil || queued {
		return nil, err
	}
	s.logger.Warn("campaign not cancelled at the end of its sale; making a new job", "campaign", e.ID)
	return outbox.Insert(ctx, tx, job.UnsoldRequest(e.ID, e.At, payload, "/"+uuid.NewString(), s.settings.Retention.Jobs))
}
