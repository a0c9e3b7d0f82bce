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
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		ids = append(ids, c.ID)
		if p.State != "" && c.State != p.State {
			t.Errorf("a campaign that is %s in the list of those that are %s", c.State, p.State)
		}
	}
	return ids
}

// putAll puts one campaign into each of the states and returns them newest first.
func putAll(t *testing.T, db *pgxpool.Pool, states ...campaign.State) (ids []uuid.UUID) {
	t.Helper()
	for _, s := range states {
		ids = append(ids, put(t, db, s))
	}
	slices.Reverse(ids)
	return ids
}

func TestCampaignsAreListedNewestFirstInPages(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	if got := page(t, db, campaign.Page{Limit: 10}); len(got) != 0 {
		t.Errorf("before the first campaign: %v", got)
	}
	all := putAll(t, db, slices.Repeat([]campaign.State{campaign.Active}, 7)...)
	for limit := 1; limit <= 8; limit++ {
		var got []uuid.UUID
		after := uuid.Nil
		for {
			ids := page(t, db, campaign.Page{After: after, Limit: limit})
			if len(ids) > limit {
				t.Fatalf("a page of %d has %d campaigns", limit, len(ids))
			}
			if got = append(got, ids...); len(ids) < limit || len(got) > len(all) {
				break
			}
			after = ids[len(ids)-1]
		}
		if !slices.Equal(got, all) {
			t.Errorf("in pages of %d: %v, want %v", limit, got, all)
		}
	}
}

func TestCampaignsMadeBetweenTwoPagesShiftNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	old := putAll(t, db, slices.Repeat([]campaign.State{campaign.Active}, 5)...)
	first := page(t, db, campaign.Page{Limit: 2})
	made := putAll(t, db, campaign.Active, campaign.Pending, campaign.Active)
	second := page(t, db, campaign.Page{After: first[1], Limit: 2})
	third := page(t, db, campaign.Page{After: second[1], Limit: 2})
	if got := slices.Concat(first, second, third); !slices.Equal(got, old) {
		t.Errorf("got %v, want %v", got, old)
	}
	if got := page(t, db, campaign.Page{Limit: 4}); !slices.Equal(got, append(slices.Clone(made), old[0])) {
		t.Errorf("a new first page: %v", got)
	}
}

func TestCampaignsAreListedByState(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	all := putAll(t, db, slices.Concat(campaign.States, campaign.States)...)
	for i, state := range campaign.States {
		newer, older := all[len(campaign.States)-1-i], all[2*len(campaign.States)-1-i]
		if got := page(t, db, campaign.Page{State: state, Limit: 10}); !slices.Equal(got, []uuid.UUID{newer, older}) {
			t.Errorf("%s: %v", state, got)
		}
		if got := page(t, db, campaign.Page{State: state, After: newer, Limit: 10}); !slices.Equal(got, []uuid.UUID{older}) {
			t.Errorf("%s, after the first: %v", state, got)
		}
	}
	if got := page(t, db, campaign.Page{Limit: 100}); !slices.Equal(got, all) {
		t.Errorf("whatever the state: %v", got)
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
	if _, _, _, err := campaign.SoldNow(t.Context(), db, id); err == nil {
		t.Error("SoldNow: none, and no error")
	}
}
