package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"triprize/internal/domain/metadata"
	"triprize/internal/testkit/fleet"
)

// A draft and each kind of movement keep their own metadata. Where the answer shows the
// resource that was made it has it; where it shows the wallet, the wallet's events have it.
func TestMetadataOfADraftAndOfEveryMovementComesBack(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	mina := fleet.TokenFor(t, s.User("mina"), "")
	is := func(a fleet.Answer, status int, want string) {
		t.Helper()
		if a.Status != status || !strings.Contains(string(a.Body), want) {
			t.Errorf("want %d with %s, got %v %s", status, want, a, a.Body)
		}
	}
	draft := fleet.CampaignBody(3)
	draft["metadata"] = map[string]string{"of": "draft"}
	made := s.Post("/v1/campaigns", draft)
	is(made, http.StatusCreated, `"metadata":{"of":"draft"}`)
	campaign := "/v1/campaigns/" + idOf(t, made)
	is(s.Post(campaign+"/publish", nil), http.StatusOK, `"state":"active"`)
	is(s.Read(campaign), http.StatusOK, `"metadata":{"of":"draft"}`)

	wallet, other := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	with := func(of string, body fleet.Fields) fleet.Fields {
		body["metadata"] = map[string]string{"of": of}
		return body
	}
	held := authorize(s, wallet, 300, 3600)
	is(s.Execute("/v1/transfers", with("transfer", fleet.Fields{"from": fleet.WalletID(wallet), "to": fleet.WalletID(other), "amount": 200})),
		http.StatusCreated, `"metadata":{"of":"transfer"}`)
	is(s.Execute(wallet+"/debit", with("debit", fleet.Fields{"amount": 100})), http.StatusOK, `"balance":700`)
	is(s.Execute(held+"/capture", with("capture", fleet.Fields{"amount": 120})), http.StatusOK, `"captured":120`)
	is(s.Execute(held+"/void", with("void", fleet.Fields{})), http.StatusOK, `"state":"voided"`)

	type events struct {
		Events []struct {
			Kind     string
			Metadata map[string]string
		}
	}
	seen := 0
	for _, e := range fleet.As[events](t, s.Read(wallet+"/events")).Events {
		switch e.Kind {
		case "transfer", "debit", "capture", "void":
			seen++
			if len(e.Metadata) != 1 || e.Metadata["of"] != e.Kind {
				t.Errorf("%s has %v", e.Kind, e.Metadata)
			}
		default: // without any
			if len(e.Metadata) != 0 {
				t.Errorf("%s has %v", e.Kind, e.Metadata)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d of the movements are in the history", seen)
	}
	is(s.Read(other+"/events"), http.StatusOK, `"metadata":{"of":"transfer"}`)
	for _, path := range []string{campaign, wallet, wallet + "/events", held} {
		if a := s.Do(0, mina, http.MethodGet, path, nil, nil); a.Status != http.StatusOK || strings.Contains(string(a.Body), "metadata") {
			t.Errorf("a user reads %s: %v %s", path, a, a.Body)
		}
	}
}

// The contract bounds each pair. All of them together are bounded wherever they are taken.
func TestMetadataThatAreTooLongTogetherAreTakenNowhere(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	campaign, wallet, other := "/v1/campaigns/"+s.Campaign(3).String(), s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	held := authorize(s, wallet, 300, 3600)
	long := make(map[string]string)
	for i := range metadata.MaxBytes/metadata.MaxValue + 1 {
		long[string(rune('a'+i))] = strings.Repeat("v", metadata.MaxValue)
	}
	refused := func(a fleet.Answer, path string) {
		t.Helper()
		if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), `"pointer":"/metadata"`) {
			t.Errorf("%s: %v %s", path, a, a.Body)
		}
	}
	for path, body := range map[string]fleet.Fields{
		"/v1/wallets":              {"owner_id": s.User("zoe"), "currency": "JPY"},
		wallet + "/credit":         {"amount": 1},
		wallet + "/debit":          {"amount": 1},
		"/v1/transfers":            {"from": fleet.WalletID(wallet), "to": fleet.WalletID(other), "amount": 1},
		wallet + "/authorizations": {"amount": 1},
		held + "/capture":          {"amount": 1},
		held + "/void":             {},
		campaign + "/holds":        {"user_id": s.User("mina"), "quantity": 1},
		campaign + "/purchases":    {"user_id": s.User("mina"), "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external"}},
	} {
		body["metadata"] = long
		refused(s.Execute(path, body), path)
	}
	draft := fleet.CampaignBody(3)
	draft["metadata"] = long
	refused(s.Post("/v1/campaigns", draft), "/v1/campaigns")
	refused(s.Do(0, s.Operator, http.MethodPatch, campaign, nil, fleet.Fields{"metadata": long}), campaign)
}
