package reconciliation_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

func TestWhatWeMakeHasTheIdOfOurInstallation(t *testing.T) {
	t.Parallel()
	s := openShop(t, openAccount(t, stripesim.Settings{}))
	ours, err := reconciliation.Installation(t.Context(), s.db)
	s.must(err)
	b := s.buy("pm_card_visa")
	in, err := s.client.Intent(t.Context(), b.intent)
	if err != nil || in.Metadata["installation"] != ours.String() || in.Metadata["purchase_id"] != b.purchase.String() {
		t.Errorf("%v, %v", in.Metadata, err)
	}
	r, err := s.client.Refund(t.Context(), *s.refundNow(s.giveBack(b)).ProviderID)
	if err != nil || r.Metadata["installation"] != ours.String() || r.Metadata["purchase_id"] != b.purchase.String() {
		t.Errorf("%v, %v", r.Metadata, err)
	}
}

func TestNothingIsMadeWithoutTheId(t *testing.T) {
	t.Parallel()
	a := openAccount(t, stripesim.Settings{})
	closed, err := servers.DB(t).Begin(t.Context())
	if err != nil || closed.Rollback(t.Context()) != nil {
		t.Fatal(err)
	}
	provider := reconciliation.Mark(a.client, closed) // the id cannot be read
	given := intent(uuid.NewString())
	for name, call := range map[string]func() error{
		"intent": func() error { _, err := provider.CreateIntent(t.Context(), given); return err },
		"refund": func() error {
			_, err := provider.CreateRefund(t.Context(), payprovider.NewRefund{Key: "r", IntentID: "pi_1", Amount: 1})
			return err
		},
	} {
		if e, ok := errors.AsType[*payprovider.Error](call()); !ok || e.Kind != payprovider.KindUnavailable {
			t.Errorf("%s: %v", name, e)
		}
	}
	if n := a.sim.Totals().Requests; n != 0 || len(given.Metadata) != 1 {
		t.Errorf("%d requests, %v", n, given.Metadata)
	}
}
