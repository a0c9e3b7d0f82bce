package job

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
)

// CampaignCancellations returns the jobs that cancel campaigns, or have done so, by
// campaign. It leaves out campaigns that have none, or none any more.
func CampaignCancellations(ctx context.Context, db postgres.DB, campaigns []uuid.UUID) (map[uuid.UUID]Job, error) {
	// Of several requests one is carried out: the first that has told its progress.
	// The others fail.
	found, err := postgres.Collect(ctx, db, scan, `
		SELECT `+columns+` FROM unnest($1::uuid[]) AS c (id)
		CROSS JOIN LATERAL (SELECT * FROM jobs
			WHERE kind = 'campaign-cancellation' AND campaign_id = c.id AND state <> 'failed'
			ORDER BY progress IS NULL, accepted_at LIMIT 1) j`, campaigns)
	if err != nil {
		return nil, fmt.Errorf("job.CampaignCancellations: %w", err)
	}
	of := make(map[uuid.UUID]Job, len(found))
	for _, j := range found {
		of[*j.CampaignID] = j
	}
	return of, nil
}
