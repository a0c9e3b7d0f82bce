package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// Two users of an app and the app itself use one idempotency key, each for a request of its own.
func TestAnAppHearsOfItsUsersAndSeesTheirJobsAndTheyOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1, Env: slices.Concat(tellingLoopback, fleet.Trusting.Env, []string{"TRIPRIZE_TOKENS_CLIENT=shop"})})
	shop, other, id := s.NewKey("shop"), s.NewKey("other"), s.Campaign(4)
	tokens := map[string]string{"mina": fleet.TokenFor(t, "mina", ""), "otto": fleet.TokenFor(t, "otto", "")}
	heard, unheard := toldApp(t, s, "shop"), toldApp(t, s, "other")
	servers.Exec(t, s.DB, `UPDATE webhook_endpoints SET verified_at = clock_timestamp()`)
	post := func(credential, path, body string) fleet.Answer {
		t.Helper()
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": "one", "Prefer": fleet.UntilFinal}, fleet.RawJSON(body))
	}
	if a := post(shop, "/v1/wallets", `{"owner_id":"mina","currency":"JPY","initial_balance":5000}`); a.Status != http.StatusCreated {
		t.Fatalf("%v %s", a, a.Body)
	}
	buy := func(credential, user string) fleet.Answer {
		t.Helper()
		return post(credential, "/v1/campaigns/"+id.String()+"/purchases", `{"user_id":"`+user+`","selection":{"quantity":1},"payment":{"method":"wallet"}}`)
	}
	minas, ottos := buy(tokens["mina"], "mina"), buy(tokens["otto"], "otto") // otto has no wallet
	if minas.State != "succeeded" || ottos.State != "failed" || minas.ID == ottos.ID {
		t.Fatalf("%v %s\n%v %s", minas, minas.Body, ottos, ottos.Body)
	}
	if again := buy(tokens["mina"], "mina"); again.ID != minas.ID || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %v %s", again, again.Body)
	}
	apps := s.Do(0, shop, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": "two", "Prefer": fleet.UntilFinal},
		fleet.RawJSON(`{"user_id":"mina","selection":{"quantity":1},"payment":{"method":"wallet"}}`))
	hold := s.Do(0, tokens["mina"], http.MethodPost, "/v1/campaigns/"+id.String()+"/holds", map[string]string{"Idempotency-Key": "two"},
		fleet.RawJSON(`{"user_id":"mina","quantity":1}`)) // the app's key, and not its request
	if apps.State != "succeeded" || hold.Status != http.StatusCreated {
		t.Fatalf("%v %s\n%v %s", apps, apps.Body, hold, hold.Body)
	}
	want := map[string]bool{"purchase.completed " + minas.Result.PurchaseID.String(): true, "purchase.completed " + apps.Result.PurchaseID.String(): true,
		"job.failed " + ottos.ID.String(): true, "hold.created " + hold.ID.String(): true}
	buyAs(s, other, id, "anna", "external", "") // the other app hears of its own only
	hears := func(a *told) (what []string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for name := range a.messages {
			if kind, _, _ := strings.Cut(name, "."); kind == "purchase" || kind == "hold" || kind == "job" {
				what = append(what, name)
			}
		}
		return what
	}
	servers.Eventually(t, "both apps hear of what is theirs", func() bool { return len(hears(heard)) >= len(want) && len(hears(unheard)) >= 1 })
	for _, what := range hears(heard) {
		if !want[what] {
			t.Errorf("heard of %s", what)
		}
	}
	for _, what := range hears(unheard) {
		if !strings.HasPrefix(what, "purchase.completed ") || want[what] {
			t.Errorf("another app has heard of %s", what)
		}
	}

	for what, c := range map[string]struct {
		credential string
		job        uuid.UUID
		status     int
	}{
		"the app reads its user's": {shop, minas.ID, http.StatusOK}, "a user reads its own": {tokens["mina"], minas.ID, http.StatusOK},
		"a user reads another's": {tokens["otto"], minas.ID, http.StatusNotFound}, "a user reads its app's for it": {tokens["mina"], apps.ID, http.StatusNotFound},
		"another app reads a user's": {other, minas.ID, http.StatusNotFound},
	} {
		if a := s.Do(0, c.credential, http.MethodGet, "/v1/jobs/"+c.job.String(), nil, nil); a.Status != c.status {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	for what, c := range map[string]struct {
		credential, query string
		sees              []uuid.UUID
		n                 int // 0: any number
	}{
		"a user lists": {tokens["mina"], "", []uuid.UUID{minas.ID}, 2}, "a user lists another's": {tokens["mina"], "?user_id=otto", nil, -1},
		"the app lists": {shop, "", []uuid.UUID{minas.ID, ottos.ID, apps.ID}, 0}, "another app lists": {other, "", nil, 1},
	} {
		got, _ := elements(t, s.Do(0, c.credential, http.MethodGet, "/v1/jobs"+c.query, nil, nil))
		for _, id := range c.sees {
			if !slices.Contains(got, id.String()) {
				t.Errorf("%s %v, and not %s", what, got, id)
			}
		}
		if c.n != 0 && len(got) != max(c.n, 0) {
			t.Errorf("%s %v", what, got)
		}
	}
}
