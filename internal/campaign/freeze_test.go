package campaign_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/testkit/servers"
)

func TestOnlyTheDrawOfASoldOutCampaignBegins(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, c := range map[string]struct {
		reserved, sold int
		begins         bool
	}{
		"sold out":        {0, 10, true},
		"one is free":     {0, 9, false},
		"one is reserved": {1, 9, false},
		"nothing is sold": {0, 0, false},
	} {
		id := put(t, db, campaign.Active)
		exec(t, db, `UPDATE campaigns SET positions_reserved = $2, positions_sold = $3, paused_at = now() WHERE id = $1`, id, c.reserved, c.sold)
		before := everything(t, db, id)
		err := attempt(t, db, func(tx pgx.Tx) error { return campaign.StartDraw(t.Context(), tx, id) })
		if c.begins != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.begins {
			if after := everything(t, db, id); after != before {
				t.Errorf("%s: something changed:\n%s\n%s", name, before, after)
			}
			continue
		}
		if now := get(t, db, id); now.State != campaign.Drawing || now.PausedAt != nil || now.DrawStartedAt == nil {
			t.Errorf("%s: %+v", name, now)
		}
		if sold, _, err := campaign.SoldNow(t.Context(), db, id); err != nil || sold != 10 {
			t.Errorf("%s: %d are sold, %v", name, sold, err)
		}
	}
}

func TestEveryPrizeIsAwardedOnceToAPositionOfItsLayer(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := create(t, db, fullDraft()) // prize 1 in layer 1, 2 in layer 3, 3 to 6 in layer 4
	other := create(t, db, fullDraft())
	award := func(id uuid.UUID, numbers, columns []int) error {
		return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return campaign.AwardPrizes(t.Context(), tx, id, numbers, columns) })
	}
	servers.NoError(t, award(id, []int{3, 1}, []int{4, 1}))
	before := everything(t, db, id)
	for name, c := range map[string]struct{ numbers, columns []int }{
		"a prize that was awarded":           {[]int{3}, []int{1}},
		"one that was awarded, among others": {[]int{2, 3}, []int{1, 1}},
		"a prize that does not exist":        {[]int{7}, []int{1}},
		"a column beyond the layer":          {[]int{2}, []int{4}},
		"column 0":                           {[]int{2}, []int{0}},
		"a position that has won":            {[]int{4}, []int{4}},
		"one position for two prizes":        {[]int{5, 6}, []int{2, 2}},
	} {
		if err := award(id, c.numbers, c.columns); err == nil {
			t.Errorf("%s: it was awarded", name)
		}
	}
	if after := everything(t, db, id); after != before {
		t.Errorf("a refusal left something behind:\n%s\n%s", before, after)
	}
	if err := award(id, []int{6, 2, 4}, []int{1, 3, 2}); err != nil {
		t.Error(err)
	}
	if got := columns(t, db, id); !slices.Equal(got, []int{1, 3, 4, 2, 0, 1}) {
		t.Errorf("the winning columns are %v", got)
	}
	if got := columns(t, db, other); !slices.Equal(got, make([]int, 6)) {
		t.Errorf("another campaign's are %v", got)
	}
	if err := award(id, nil, nil); err != nil {
		t.Errorf("nothing to award: %v", err)
	}
}
