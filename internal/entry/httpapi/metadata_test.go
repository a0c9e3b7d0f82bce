package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

func TestMetadataComesBackToAppsAndToNobodyElse(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	mina := fleet.TokenFor(t, s.User("mina"), "")
	made := s.Campaign(4)
	id := made.String()
	post := func(credential, key, path, body string) fleet.Answer {
		t.Helper()
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key, "Prefer": "wait=10"}, fleet.RawJSON(body))
	}
	const given = `{"a/b~c":"né\"\\","order":"4711"}`
	campaign := "/v1/campaigns/" + id
	if a := s.Do(0, s.Operator, http.MethodPatch, campaign, nil, fleet.RawJSON(`{"metadata":`+given+`}`)); a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"metadata":`+given) {
		t.Fatalf("a campaign on sale: %v %s", a, a.Body)
	}
	hold := post(s.App, "h", campaign+"/holds", `{"user_id":"`+s.User("mina")+`","positions":[{"layer":3,"column":1}],"metadata":`+given+`}`)
	bought := post(s.App, "p", campaign+"/purchases", `{"user_id":"`+s.User("mina")+`","selection":{"quantity":1},"payment":{"method":"external"},"metadata":`+given+`}`)
	opened := post(s.App, "w", "/v1/wallets", `{"owner_id":"`+s.User("mina")+`","currency":"JPY","initial_balance":900,"metadata":`+given+`}`)
	wallet := "/v1/wallets/" + idOf(t, opened)
	held := post(s.App, "a", wallet+"/authorizations", `{"amount":5,"metadata":`+given+`}`)
	for what, a := range map[string]fleet.Answer{"hold": hold, "wallet": opened, "authorization": held} {
		if a.Status != http.StatusCreated || !strings.Contains(string(a.Body), `"metadata":`+given) {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	if a := post(s.App, "c", wallet+"/credit", `{"amount":5,"metadata":{"till":"9"}}`); a.Status != http.StatusOK {
		t.Errorf("%v %s", a, a.Body)
	}
	for path, want := range map[string]string{
		campaign: given, "/v1/campaigns?" + from(made): given,
		"/v1/holds/" + idOf(t, hold):                         given,
		"/v1/purchases/" + bought.Result.PurchaseID.String(): given,
		"/v1/users/" + s.User("mina") + "/purchases":         given,
		wallet:                                   given,
		"/v1/wallets?owner_id=" + s.User("mina"): given,
		wallet + "/authorizations/" + idOf(t, held): given,
		wallet + "/events":                          `{"till":"9"}`,
	} {
		if a := s.Do(0, s.App, http.MethodGet, path, nil, nil); a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"metadata":`+want) {
			t.Errorf("an app reads %s: %v %s", path, a, a.Body)
		}
		if a := s.Do(0, mina, http.MethodGet, path, nil, nil); a.Status != http.StatusOK || strings.Contains(string(a.Body), "metadata") {
			t.Errorf("a user reads %s: %v %s", path, a, a.Body)
		}
	}
	extend := "/v1/holds/" + idOf(t, hold) + "/extend"
	if a := post(mina, "e", extend, `{}`); a.Status != http.StatusOK || strings.Contains(string(a.Body), "metadata") {
		t.Errorf("a user extends the hold of an app: %v %s", a, a.Body)
	}
	if a := post(mina, "f", campaign+"/holds", `{"user_id":"`+s.User("mina")+`","quantity":1,"metadata":{"a":"b"}}`); a.Status != http.StatusForbidden {
		t.Errorf("a user writes some: %v %s", a, a.Body)
	}
	for body, pointer := range map[string]string{
		`{"a/b":1}`: "/metadata/a~1b", `{"k":"` + strings.Repeat("v", 201) + `"}`: "/metadata/k", `{"":"v"}`: "/metadata/", `{"k":null}`: "/metadata/k", `{"k":"\u0007"}`: "/metadata/k",
		`[]`: "/metadata",
	} {
		a := post(s.App, "bad", "/v1/wallets", `{"owner_id":"`+s.User("otto")+`","currency":"JPY","metadata":`+body+`}`)
		if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), `"pointer":"`+pointer+`"`) {
			t.Errorf("%.40s: %v %s", body, a, a.Body)
		}
	}
	if a := s.Do(0, s.Operator, http.MethodPatch, campaign, nil, fleet.RawJSON(`{"metadata":null}`)); a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"metadata":{}`) {
		t.Errorf("emptied: %v %s", a, a.Body)
	}
}

// idOf returns the id of the resource in an answer.
func idOf(t *testing.T, a fleet.Answer) string {
	t.Helper()
	var made struct{ ID string }
	if err := json.Unmarshal(a.Body, &made); err != nil || made.ID == "" {
		t.Fatalf("%v %s", a, a.Body)
	}
	return made.ID
}

func TestASelectionHasExactlyOneWay(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	campaign := "/v1/campaigns/" + s.Campaign(3).String()
	for body, want := range map[string]string{
		`{}`: `"pointer":"/selection","detail":"must have exactly one of quantity, positions and hold_id"`, `{"quantity":null}`: "exactly one of",
		`{"quantity":1,"positions":[{"layer":1,"column":1}]}`: "exactly one of", `{"layer":1}`: "exactly one of",
		`{"layer":1,"positions":[{"layer":1,"column":1}]}`: `"pointer":"/selection/layer","detail":"goes with quantity only"`,
	} {
		a := s.Do(0, s.App, http.MethodPost, campaign+"/purchases", map[string]string{"Idempotency-Key": "k"}, fleet.RawJSON(`{"user_id":"a","selection":`+body+`,"payment":{"method":"external"}}`))
		if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), want) {
			t.Errorf("%s: %v %s", body, a, a.Body)
		}
	}
	if a := s.Do(0, s.App, http.MethodPost, campaign+"/holds", map[string]string{"Idempotency-Key": "h"}, fleet.RawJSON(`{"user_id":"a"}`)); a.Status != http.StatusBadRequest ||
		!strings.Contains(string(a.Body), "must have exactly one of quantity and positions") {
		t.Errorf("a hold of nothing: %v %s", a, a.Body)
	}
}
