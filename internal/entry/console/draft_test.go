package console

import (
	"cmp"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
)

func TestTheFormOfACampaignHasWhatTheContractHas(t *testing.T) {
	t.Parallel()
	for _, one := range draftFields() {
		if one.Name == "" || one.member.Type == "" || one.Label == "" {
			t.Errorf("%+v", one)
		}
	}
	at, beacon := time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC), true
	full := client.Campaign{Name: "Hall", Currency: "EUR", PurchaseLimit: 10, SaleStartsAt: at, SaleEndsAt: at.Add(time.Second), PublicPage: "embed", EmbedOrigins: []string{"https://a.example", "https://b.example"},
		Policies: client.Policies{Unsold: "draw", Beacon: true, CancellationUntil: at}, Layers: []client.Layer{{Layer: 1, Price: 7, Positions: client.Counts{Total: 30}}}}
	typed := &form{values: valuesOf(full), Faults: make(map[string]string)}
	want := client.CampaignDraft{Name: "Hall", Currency: "EUR", PurchaseLimit: 10, SaleStartsAt: at, SaleEndsAt: at.Add(time.Second), PublicPage: "embed", EmbedOrigins: full.EmbedOrigins,
		Policies: client.PoliciesDraft{Unsold: "draw", Beacon: &beacon, CancellationUntil: at}, Layers: []client.LayerDraft{{Layer: 1, Price: 7, Positions: 30}}}
	if got := draftOf(typed); !reflect.DeepEqual(got, want) || len(typed.Faults) > 0 {
		t.Errorf("it reads %+v, %v, of %v", got, typed.Faults, typed.values)
	}
	for _, one := range draftFields() {
		other := map[string]string{"number": "11", "datetime-local": "2031-02-03T04:05", "textarea": "31 || 7"}[one.Type]
		for _, option := range one.Options {
			if option != typed.values[one.Name] {
				other = option
			}
		}
		changed := &form{values: maps.Clone(typed.values), Faults: make(map[string]string)}
		changed.values[one.Name] = cmp.Or(other, "other")
		if reflect.DeepEqual(draftOf(changed), want) || len(changed.Faults) > 0 {
			t.Errorf("%s: %q changes nothing, %v", one.Name, changed.values[one.Name], changed.Faults)
		}
	}
	for _, line := range []string{"2 | A | 12345678901234567890", "1234567 | A | 100", "2 | A | 100 | Gold x123456"} { // too large to be read
		typed := &form{values: map[string]string{"/layers": line}, Faults: make(map[string]string)}
		if draftOf(typed); !strings.Contains(typed.Faults["/layers"], "line 1 is not like") {
			t.Errorf("%s: %v", line, typed.Faults)
		}
	}
}
