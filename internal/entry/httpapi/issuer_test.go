package httpapi_test

import (
	"encoding/json"
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
	buyOf(t, s, other, id) // the other app hears of its own only
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
	if got := jobsSeenBy(t, s, tokens["mina"], ""); len(got) != 2 || !slices.Contains(got, minas.ID.String()) {
		t.Errorf("a user lists %v", got)
	}
	if got := jobsSeenBy(t, s, tokens["mina"], "?user_id=otto"); len(got) != 0 {
		t.Errorf("a user lists another's: %v", got)
	}
	if got := jobsSeenBy(t, s, shop, ""); !slices.Contains(got, minas.ID.String()) || !slices.Contains(got, ottos.ID.String()) || !slices.Contains(got, apps.ID.String()) {
		t.Errorf("the app lists %v", got)
	}
	if got := strings.Join(jobsSeenBy(t, s, other, ""), ","); strings.Contains(got, minas.ID.String()) {
		t.Errorf("another app lists %v", got)
	}
}

// buyOf buys a position with an app's key.
func buyOf(t *testing.T, s *fleet.System, key string, id uuid.UUID) {
	t.Helper()
	a := s.Do(0, key, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": "one", "Prefer": fleet.UntilFinal},
		fleet.RawJSON(`{"user_id":"anna","selection":{"quantity":1},"payment":{"method":"external"}}`))
	if a.State != "succeeded" {
		t.Fatalf("%v %s", a, a.Body)
	}
}

func jobsSeenBy(t *testing.T, s *fleet.System, credential, query string) (ids []string) {
	t.Helper()
	a := s.Do(0, credential, http.MethodGet, "/v1/jobs"+query, nil, nil)
	var list struct{ Jobs []struct{ ID string } }
	if err := json.Unmarshal(a.Body, &list); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%v %s", a, a.Body)
	}
	for _, j := range list.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}
