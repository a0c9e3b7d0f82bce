package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/sale"
)

// EndedSales carries out policies.unsold for campaigns whose sale has ended before
// everything was sold.
type EndedSales struct {
	DB           postgres.Pool
	Seller       *sale.Seller
	Holds        *inventory.HoldMetrics // counts the holds that are released
	Enqueue      job.Enqueuer
	JobRetention time.Duration // of the jobs
	Logger       *slog.Logger
}

// Sweep is the sweep ended-sales.
func (s EndedSales) Sweep() sweep.Sweep {
	return sweep.Sweep{Name: "ended-sales", Every: 10 * time.Second, Counts: []string{"found", "enqueued", "draws_due", "draws_begun"},
		Run: func(ctx context.Context, run sweep.Run) error {
			return errors.Join(s.beginDraws(ctx, run), s.cancelEnded(ctx, run))
		}}
}

// beginDraws ends the sales of campaigns that are drawn at their end, each in a short
// transaction. Those that wait for reservations are found again until these have ended. A
// campaign that fails does not stop the others.
func (s EndedSales) beginDraws(ctx context.Context, run sweep.Run) error {
	due, err := campaign.ToDraw(ctx, s.DB, run.BatchSize*run.MaxBatches)
	if err != nil {
		return err
	}
	run.Counts["draws_due"] = len(due)
	var failures []error
	for _, id := range due {
		end, err := s.Seller.EndSale(ctx, id)
		if err == nil && end.Ended {
			run.Counts["draws_begun"]++
			_, err = s.Enqueue(ctx, end.Messages)
		}
		job.LogFinal(ctx, s.Logger, end.Outcomes)
		s.Holds.Count(inventory.HoldsReleased, end.Holds)
		if end.GivenUp > 0 {
			s.Logger.Warn("the draw waits no longer for payments whose outcome the provider does not report; what is paid after all is refunded",
				"campaign", id, "payments", end.GivenUp)
		}
		failures = append(failures, err)
	}
	return errors.Join(append(failures, ctx.Err())...)
}

// UnsoldReason is the reason of the cancellations that [EndedSales] orders.
const UnsoldReason = "the sale has ended before everything was sold"

// cancelEnded makes a job that cancels the campaign for every campaign whose policy is that. The
// job decides: the end of the sale may be moved meanwhile. Campaigns that have such a job are found
// until it is done, and get no other, so they do not fill the batches of a run: it reads those
// first whose sale ended first.
func (s EndedSales) cancelEnded(ctx context.Context, run sweep.Run) error {
	ended, err := campaign.EndedUnsold(ctx, s.DB, run.BatchSize*run.MaxBatches)
	if err != nil {
		return err
	}
	run.Counts["found"] = len(ended)
	payload, err := json.Marshal(CancelOrder{By: job.System, Reason: UnsoldReason, IfUnsold: true})
	if err != nil {
		return err
	}
	for _, e := range ended {
		var messages []job.Message
		err := postgres.InTx(ctx, s.DB, func(tx pgx.Tx) (err error) {
			messages, err = s.insertUnsold(ctx, tx, e, payload)
			return err
		})
		if err != nil {
			return err
		}
		enqueued, err := s.Enqueue(ctx, messages)
		run.Counts["enqueued"] += enqueued
		if err != nil {
			return err
		}
	}
	return nil
}

// insertUnsold makes the job of an ended sale, once; and another one when that was given
// up.
func (s EndedSales) insertUnsold(ctx context.Context, tx pgx.Tx, e campaign.EndedSale, payload []byte) ([]job.Message, error) {
	made, err := job.Insert(ctx, tx, job.UnsoldRequest(e.ID, e.At, payload, "", s.JobRetention))
	if err != nil || len(made) > 0 {
		return made, err
	}
	queued, err := job.OthersQueued(ctx, tx, job.KindCampaignCancellation, e.ID, uuid.Nil)
	if err != nil || queued {
		return nil, err
	}
	s.Logger.Warn("campaign not cancelled at the end of its sale; making a new job", "campaign", e.ID)
	return job.Insert(ctx, tx, job.UnsoldRequest(e.ID, e.At, payload, "/"+uuid.NewString(), s.JobRetention))
}
