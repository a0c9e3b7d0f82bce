package watch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// ReadProgress reads the progress of campaigns. It costs one query, and one more when
// some of them are cancelled: it then says how much of them is given back.
func ReadProgress(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]campaign.Progress, error) {
	list, err := campaign.ReadProgress(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	return list, addGivingBack(ctx, db, list)
}

// ProgressOf returns the progress of a campaign that has been read, as ReadProgress does.
func ProgressOf(ctx context.Context, db postgres.DB, c campaign.Campaign) (campaign.Progress, error) {
	list := []campaign.Progress{campaign.ProgressOf(c)}
	err := addGivingBack(ctx, db, list)
	return list[0], err
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
