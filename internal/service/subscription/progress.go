package subscription

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/drawrecord"
	"triprize/internal/store/job"
)

// ReadProgress reads the progress of campaigns. It costs one query, and one more when
// some of them are cancelled: it then says how much of them is given back; and one more
// when some are drawing: how far their draws are.
func ReadProgress(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]campaign.Progress, error) {
	list, err := campaign.ReadProgress(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	return list, addDetails(ctx, db, list)
}

// ProgressOf returns the progress of a campaign that has been read, as ReadProgress does.
func ProgressOf(ctx context.Context, db postgres.DB, c campaign.Campaign) (campaign.Progress, error) {
	list := []campaign.Progress{campaign.ProgressOf(c)}
	err := addDetails(ctx, db, list)
	return list[0], err
}

func addDetails(ctx context.Context, db postgres.DB, list []campaign.Progress) error {
	if err := addGivingBack(ctx, db, list); err != nil {
		return err
	}
	return addDrawing(ctx, db, list)
}

// addDrawing adds to campaigns that are drawing how far they are.
func addDrawing(ctx context.Context, db postgres.DB, list []campaign.Progress) error {
	var drawing []uuid.UUID
	for _, p := range list {
		if p.State == campaign.Drawing {
			drawing = append(drawing, p.CampaignID)
		}
	}
	if len(drawing) == 0 {
		return nil
	}
	known, err := drawrecord.ReadProgress(ctx, db, drawing)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for i, p := range list {
		now, ok := known[p.CampaignID]
		if !ok {
			continue
		}
		list[i] = p.WithDraw(campaign.DrawProgress{Round: now.Round, RoundDueAt: now.RoundDueAt, VoidsAt: now.VoidsAt, FreezeHash: now.FreezeHash.String()})
	}
	return nil
}

// addGivingBack adds to cancelled campaigns what their jobs say. A campaign whose job is
// gone was given back long ago.
func addGivingBack(ctx context.Context, db postgres.DB, list []campaign.Progress) error {
	var cancelled []uuid.UUID
	for _, p := range list {
		if p.State == campaign.Cancelled {
			cancelled = append(cancelled, p.CampaignID)
		}
	}
	if len(cancelled) == 0 {
		return nil
	}
	jobs, err := job.CampaignCancellations(ctx, db, cancelled)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for i, p := range list {
		j, known := jobs[p.CampaignID]
		if !known {
			continue
		}
		back := campaign.GivingBack{Over: j.State.Final()}
		if j.Progress != nil && j.Progress.Refunds != nil {
			r := j.Progress.Refunds
			back.Total, back.Done, back.Waiting = r.Total, r.Done, r.Waiting
		}
		list[i] = p.WithGivingBack(back)
	}
	return nil
}
