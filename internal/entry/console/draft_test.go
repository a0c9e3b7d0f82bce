package console

import (
	"reflect"
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
}
