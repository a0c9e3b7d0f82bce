package fleet

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// CampaignNow returns a campaign as the database has it.
func (s *System) CampaignNow(id uuid.UUID) campaign.Campaign {
	s.T.Helper()
	c, err := campaign.Get(s.T.Context(), s.DB, id)
	servers.NoError(s.T, err)
	return c
}

// Draws counts the recorded draws of all campaigns.
func (s *System) Draws() int {
	s.T.Helper()
	return servers.Value[int](s.T, s.DB, `SELECT count(*) FROM draws`)
}

// AwaitDrawn waits until campaigns are sold out and drawn.
func (s *System) AwaitDrawn(ids ...uuid.UUID) {
	s.T.Helper()
	servers.Eventually(s.T, fmt.Sprintf("%d campaigns completed", len(ids)), func() bool {
		for _, id := range ids {
			if s.CampaignNow(id).State != campaign.Completed {
				return false
			}
		}
		return true
	})
}

// CampaignBody is a valid body of POST /v1/campaigns.
func CampaignBody(baseLength int) map[string]any {
	var layers []map[string]any
	for layer := 1; layer <= baseLength; layer++ {
		layers = append(layers, map[string]any{"layer": layer, "price": 100 * layer,
			"prizes": []map[string]any{{"name": fmt.Sprintf("Prize %d", layer), "count": 1}}})
	}
	return map[string]any{"name": "夏の三角くじ", "base_length": baseLength, "currency": "JPY", "layers": layers}
}

// Cancel asks to cancel a purchase and waits until that is done or refused.
func (s *System) Cancel(credential string, purchase uuid.UUID, key, reason string) Answer {
	return s.Do(0, credential, http.MethodPost, "/v1/purchases/"+purchase.String()+"/cancel",
		map[string]string{"Idempotency-Key": key, "Prefer": UntilFinal}, map[string]string{"reason": reason})
}

// CompleteAll completes every queued purchase of the test's clients in this process, announcing nothing.
func CompleteAll(t *testing.T, s *System) {
	t.Helper()
	rows, err := s.DB.Query(t.Context(), `SELECT id, campaign_id, '', 0 FROM jobs WHERE state = 'queued' AND kind = 'purchase' AND client LIKE '%' || $1`, s.suffix)
	servers.NoError(t, err)
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job.Ref])
	servers.NoError(t, err)
	if _, err := fixture.Seller(s.DB).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
}

// Sweeps lists the sweeps, as the operator.
func (s *System) Sweeps() []SweepView {
	s.T.Helper()
	a := Want(s.T, http.StatusOK, s.Do(0, s.Operator, http.MethodGet, "/v1/sweeps", nil, nil))
	return As[struct{ Sweeps []SweepView }](s.T, a).Sweeps
}

// SweepView is what the tests read of a sweep.
type SweepView struct {
	Name       string
	LastReport *SweepReport `json:"last_report"`
}

// SweepReport is what a run of a sweep has said.
type SweepReport struct {
	Sweep     string
	StartedAt time.Time `json:"started_at"`
	Counts    map[string]int
	More      bool
	Error     string
}

// Purchases counts the purchases of a campaign.
func (s *System) Purchases(campaign uuid.UUID) int {
	s.T.Helper()
	return servers.Value[int](s.T, s.DB, `SELECT count(*) FROM purchases WHERE campaign_id = $1`, campaign)
}

// Sales returns what wallets have paid for purchases, less what they got back, by
// the ledger and by the purchases.
func (s *System) Sales() (ledger, purchases int64) {
	s.T.Helper()
	err := s.DB.QueryRow(s.T.Context(), `
		SELECT (SELECT coalesce(sum(CASE kind WHEN 'purchase' THEN amount ELSE -amount END), 0)::bigint FROM ledger_entries WHERE kind IN ('purchase', 'refund')),
		       (SELECT coalesce(sum(amount), 0)::bigint FROM purchases WHERE payment_method = 'wallet' AND state = 'completed')`).Scan(&ledger, &purchases)
	servers.NoError(s.T, err)
	return ledger, purchases
}

// Deadlocks counts those that Postgres has resolved in this system's database.
func (s *System) Deadlocks() int {
	s.life.Helper()
	return servers.Value[int](s.life, s.DB, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}
