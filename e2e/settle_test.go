package e2e

import (
	"bytes"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// settleAll settles every queued purchase in this process, announcing nothing.
func settleAll(t *testing.T, s *system) {
	t.Helper()
	rows, err := s.db.Query(t.Context(), `SELECT id, campaign_id FROM jobs WHERE state = 'queued' AND kind = 'purchase'`)
	if err != nil {
		t.Fatal(err)
	}
	refs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r job.Ref, err error) {
		var campaign uuid.UUID
		err = row.Scan(&r.ID, &campaign)
		r.CampaignID = campaign
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fixture.Seller(s.db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
}

func contains(data []byte, text string) bool { return bytes.Contains(data, []byte(text)) }
