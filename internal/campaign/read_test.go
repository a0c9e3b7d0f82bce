package campaign_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/testkit/servers"
)

// page lists the ids of one page.
func page(t *testing.T, db *pgxpool.Pool, p campaign.Page) (ids []uuid.UUID) {
	t.Helper()
	list, err := campaign.List(t.Context(), db, p)
	servers.NoError(t, err)
	for _, c := range list {
		ids = append(ids, c.ID)
		if p.State != "" && c.State != p.State {
			t.Errorf("a campaign that is %s in the list of those that are %s", c.State, p.State)
		}
	}
	return ids
}

// Whatever is made between two pages shifts nothing.
func TestCampaignsAreListedNewestFirstInPagesAndByState(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	if got := page(t, db, campaign.Page{Limit: 10}); len(got) != 0 {
		t.Errorf("before the first campaign: %v", got)
	}
	made := make(map[campaign.State][]uuid.UUID) // newest first; all under ""
	for _, state := range slices.Repeat(campaign.States, 3) {
		id := put(t, db, state)
		made[state], made[""] = append([]uuid.UUID{id}, made[state]...), append([]uuid.UUID{id}, made[""]...)
	}
	for state, want := range made {
		for limit := 1; limit <= 4; limit++ {
			var got []uuid.UUID
			for p := (campaign.Page{State: state, Limit: limit}); ; {
				ids := page(t, db, p)
				if len(ids) > limit || len(got) > 1000 {
					t.Fatalf("a page of %d has %d campaigns after %d", limit, len(ids), len(got))
				}
				if got = append(got, ids...); len(ids) < limit {
					break
				}
				p.After = ids[len(ids)-1]
				put(t, db, campaign.Active) // is newer, and in no page that is to come
			}
			if older := got[max(len(got)-len(want), 0):]; !slices.Equal(older, want) {
				t.Errorf("%q in pages of %d: %v, want %v", state, limit, got, want)
			}
		}
	}
}

func TestAnUnknownCampaignIsNotFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	put(t, db, campaign.Active)
	id := uuid.New()
	if _, err := campaign.Get(t.Context(), db, id); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("Get: %v", err)
	}
	if layers, err := campaign.Layers(t.Context(), db, id); err != nil || len(layers) != 0 {
		t.Errorf("Layers: %v, %v", layers, err)
	}
	if _, bound, err := campaign.CommitmentOf(t.Context(), db, id); err != nil || bound {
		t.Errorf("CommitmentOf: %v, %v", bound, err)
	}
	if err := campaign.Lock(t.Context(), begin(t, db), id); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("Lock: %v", err)
	}
	if _, _, err := campaign.SoldNow(t.Context(), db, id); err == nil {
		t.Error("SoldNow: none, and no error")
	}
}
