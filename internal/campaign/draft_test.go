package campaign_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/testkit/fixture"
)

var bounds = campaign.Bounds{MaxPositions: 21}

// pointersOf returns which fields an error names, in order.
func pointersOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	invalid, ok := errors.AsType[*fault.Error](err)
	if !ok || invalid.Code != fault.InvalidRequest {
		t.Fatalf("not an invalid request: %v", err)
	}
	var pointers []string
	for _, f := range invalid.Fields {
		if f.Detail == "" {
			t.Errorf("%s has no detail", f.Pointer)
		}
		pointers = append(pointers, f.Pointer)
	}
	return strings.Join(pointers, " ")
}

func TestADraftIsCheckedFieldByField(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	type draft = *campaign.Draft
	for _, c := range []struct {
		name   string
		change func(d draft)
		want   string // the fields at fault; empty: none
	}{
		{"as it is", func(draft) {}, ""},
		{"no name", func(d draft) { d.Name = "" }, "/name"},
		{"the shortest name", func(d draft) { d.Name = "x" }, ""},
		{"the longest name", func(d draft) { d.Name = strings.Repeat("籤", campaign.MaxName) }, ""},
		{"a name too long", func(d draft) { d.Name = strings.Repeat("籤", campaign.MaxName+1) }, "/name"},
		{"the shortest base", func(d draft) { *d = fixture.Draft(3) }, ""},
		{"a base too short", func(d draft) { *d = fixture.Draft(2) }, "/base_length"},
		{"the longest base", func(d draft) { *d = fixture.Draft(6) }, ""},
		{"a base too long", func(d draft) { *d = fixture.Draft(7) }, "/base_length"},
		{"neither a base nor positions", func(d draft) { d.BaseLength = 0 }, "/layers/0/positions"},
		{"a negative base", func(d draft) { d.BaseLength = -4 }, "/base_length"},
		{"no currency", func(d draft) { d.Currency = "" }, "/currency"},
		{"a currency in small letters", func(d draft) { d.Currency = "jpy" }, "/currency"},
		{"a currency that is none", func(d draft) { d.Currency = "QQQ" }, "/currency"},
		{"another currency", func(d draft) { d.Currency = "EUR" }, ""},
		{"the lowest limit", func(d draft) { d.PurchaseLimit = pointer(1) }, ""},
		{"a limit of none", func(d draft) { d.PurchaseLimit = pointer(0) }, "/purchase_limit"},
		{"a negative limit", func(d draft) { d.PurchaseLimit = pointer(-1) }, "/purchase_limit"},
		{"only a start", func(d draft) { d.SaleStartsAt = &noon }, ""},
		{"only an end", func(d draft) { d.SaleEndsAt = &noon }, ""},
		{"an end after the start", func(d draft) { d.SaleStartsAt, d.SaleEndsAt = &noon, pointer(noon.Add(time.Microsecond)) }, ""},
		{"an end at the start", func(d draft) { d.SaleStartsAt, d.SaleEndsAt = &noon, &noon }, "/sale_ends_at"},
		{"an end before the start", func(d draft) { d.SaleStartsAt, d.SaleEndsAt = &noon, pointer(noon.Add(-time.Second)) }, "/sale_ends_at"},
		{"unsold: cancel, without an end", func(d draft) { d.Policies.Unsold = campaign.UnsoldCancel }, "/policies/unsold"},
		{"unsold: cancel", func(d draft) {
			end := time.Now().Add(time.Hour)
			d.Policies.Unsold, d.SaleEndsAt = campaign.UnsoldCancel, &end
		}, ""},
		{"unsold: draw", func(d draft) { d.Policies.Unsold = campaign.UnsoldDraw }, "/policies/unsold"},
		{"unsold: nothing", func(d draft) { d.Policies.Unsold = "" }, "/policies/unsold"},
		{"unsold: something else", func(d draft) { d.Policies.Unsold = "burn" }, "/policies/unsold"},
		{"a beacon that nobody asks", func(d draft) { d.Policies.Beacon = true }, "/policies/beacon"},
		{"several faults", func(d draft) { d.Name, d.Currency, d.Policies.Unsold = "", "yen", "" }, "/name /currency /policies/unsold"},
		{"layers are looked at when the rest is right", func(d draft) { d.Name, d.Layers = "", nil }, "/name"},
	} {
		d := fixture.Draft(4)
		c.change(&d)
		if got := pointersOf(t, d.Check(bounds)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTheLayersOfADraftAreChecked(t *testing.T) {
	t.Parallel()
	prizes := func(counts ...int) (groups []campaign.PrizeGroup) {
		for _, n := range counts {
			groups = append(groups, campaign.PrizeGroup{Name: "A prize", Count: n})
		}
		return groups
	}
	type layers = []campaign.Layer
	for _, c := range []struct {
		name   string
		change func(l layers) layers
		want   string
	}{
		{"none", func(layers) layers { return nil }, "/layers"},
		{"one missing", func(l layers) layers { return l[:3] }, "/layers"},
		{"one too many", func(l layers) layers { return append(l, l[3]) }, "/layers"},
		{"one twice", func(l layers) layers { l[2].Layer = 2; return l }, "/layers/2/layer"},
		{"out of order", func(l layers) layers { l[0], l[1] = l[1], l[0]; return l }, "/layers/0/layer"},
		{"counted from 0", func(l layers) layers { l[0].Layer = 0; return l }, "/layers/0/layer"},
		{"the lowest price", func(l layers) layers { l[0].Price = 1; return l }, ""},
		{"no price", func(l layers) layers { l[3].Price = 0; return l }, "/layers/3/price"},
		{"the highest price", func(l layers) layers { l[3].Price = money.MaxAmount; return l }, ""},
		{"a price too high", func(l layers) layers { l[3].Price = money.MaxAmount + 1; return l }, "/layers/3/price"},
		{"no prizes", func(l layers) layers { l[1].Prizes = nil; return l }, ""},
		{"a prize for every position", func(l layers) layers { l[2].Prizes = prizes(3); return l }, ""},
		{"one prize too many", func(l layers) layers { l[2].Prizes = prizes(4); return l }, "/layers/2/prizes/0/count"},
		{"a prize for every position, in groups", func(l layers) layers { l[3].Prizes = prizes(1, 3); return l }, ""},
		{"one prize too many, in groups", func(l layers) layers { l[3].Prizes = prizes(2, 3); return l }, "/layers/3/prizes/1/count"},
		{"a group of none", func(l layers) layers { l[3].Prizes = prizes(1, 0); return l }, "/layers/3/prizes/1/count"},
		{"a negative group makes no room", func(l layers) layers { l[3].Prizes = prizes(-2, 6); return l }, "/layers/3/prizes/0/count"},
		{"a count near the largest number", func(l layers) layers { l[3].Prizes = prizes(1, 1<<62, 1<<62); return l }, "/layers/3/prizes/1/count"},
		{"a prize without a name", func(l layers) layers { l[1].Prizes[0].Name = ""; return l }, "/layers/1/prizes/0/name"},
		{"a prize's longest name", func(l layers) layers { l[1].Prizes[0].Name = strings.Repeat("é", 200); return l }, ""},
		{"a prize's name too long", func(l layers) layers { l[1].Prizes[0].Name = strings.Repeat("é", 201); return l }, "/layers/1/prizes/0/name"},
		{"two layers at fault", func(l layers) layers { l[0].Price, l[2].Price = 0, -1; return l }, "/layers/0/price /layers/2/price"},
	} {
		d := fixture.Draft(4)
		d.Layers = c.change(d.Layers)
		if got := pointersOf(t, d.Check(bounds)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestACampaignHasNoMorePrizesThanOthersCanRead(t *testing.T) {
	t.Parallel()
	d := fixture.Draft(150)
	wide := campaign.Bounds{MaxPositions: 11_325}
	left := campaign.MaxPrizes
	for i := range d.Layers {
		n := min(i+1, left)
		d.Layers[i].Prizes, left = nil, left-n
		if n > 0 {
			d.Layers[i].Prizes = []campaign.PrizeGroup{{Name: "A prize", Count: n}}
		}
	}
	if err := d.Check(wide); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
	d.Layers[149].Prizes = []campaign.PrizeGroup{{Name: "A prize", Count: 1}}
	if got := pointersOf(t, d.Check(wide)); got != "/layers" {
		t.Errorf("one more: %q", got)
	}
}
