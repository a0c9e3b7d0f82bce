package campaign_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/testkit/fixture"
)

func TestAPatchChangesWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	draft, currency, layers := fullDraft(), money.Currency("USD"), fixture.Draft(5).Layers
	policies := campaign.Policies{Unsold: campaign.UnsoldCancel}
	if got := draft.Apply(campaign.Patch{}); !reflect.DeepEqual(got, draft) {
		t.Errorf("an empty patch: %+v", got)
	}
	full := campaign.Patch{Name: pointer("New"), BaseLength: pointer(5), Currency: &currency, Layers: layers, Policies: &policies,
		PurchaseLimit: to(pointer(7)), SaleStartsAt: to(&noon), SaleEndsAt: to(pointer(noon.Add(time.Hour))), PublicPage: pointer(campaign.PublicPagePage)}
	want := campaign.Draft{Name: "New", BaseLength: 5, Currency: "USD", Layers: layers, Policies: policies,
		PurchaseLimit: pointer(7), SaleStartsAt: &noon, SaleEndsAt: pointer(noon.Add(time.Hour)), PublicPage: campaign.PublicPagePage} // which nobody frames
	if got := draft.Apply(full); !reflect.DeepEqual(got, want) {
		t.Errorf("a full patch: %+v\nwant %+v", got, want)
	}
	emptied := draft.Apply(campaign.Patch{PurchaseLimit: to[int](nil), SaleStartsAt: to[time.Time](nil), SaleEndsAt: to[time.Time](nil)})
	if emptied.PurchaseLimit != nil || emptied.SaleStartsAt != nil || emptied.SaleEndsAt != nil || emptied.Name != draft.Name {
		t.Errorf("emptied: %+v", emptied)
	}
}

func TestWhatIsFixedInAStateIsNamed(t *testing.T) {
	t.Parallel()
	currency := money.Currency("USD")
	patch := campaign.Patch{Name: pointer("New"), BaseLength: pointer(5), Currency: &currency, Layers: []campaign.Layer{{}}, Policies: &campaign.Policies{},
		PurchaseLimit: to[int](nil), SaleStartsAt: to(&noon), SaleEndsAt: to(&noon)}
	always := "base_length currency layers sale_starts_at policies"
	for state, fixed := range map[campaign.State]string{campaign.Active: always, campaign.Drawing: always + " purchase_limit sale_ends_at",
		campaign.Completed: always + " purchase_limit sale_ends_at", campaign.Cancelled: always + " purchase_limit sale_ends_at"} {
		if err := patch.CheckFixed(state); fault.CodeOf(err) != fault.StateConflict || !strings.Contains(err.Error(), "["+fixed+"]") {
			t.Errorf("%s: %v", state, err)
		}
		if err := (campaign.Patch{Name: pointer("New")}).CheckFixed(state); err != nil {
			t.Errorf("%s: the name: %v", state, err)
		}
	}
	if err := (campaign.Patch{PurchaseLimit: to(pointer(9)), SaleEndsAt: to(&noon)}).CheckFixed(campaign.Active); err != nil {
		t.Errorf("a limit and an end of an active one: %v", err)
	}
}
