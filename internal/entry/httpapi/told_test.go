package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// told is an app that is told. It knows each message once, and how often it came.
type told struct {
	*httptest.Server
	mu       sync.Mutex
	messages map[string]json.RawMessage // data, by type and the resource's id
	sent     map[string]int             // by webhook-id
	wrong    []string
}

// receive starts an app that answers with a status. Without a key it takes every signature.
func receive(t *testing.T, status int, key *standardwebhooks.Webhook) *told {
	t.Helper()
	a := &told{messages: make(map[string]json.RawMessage), sent: make(map[string]int)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			Type string
			Data json.RawMessage
		}
		var resource struct{ ID uuid.UUID }
		a.mu.Lock()
		defer a.mu.Unlock()
		if key != nil {
			if err := key.Verify(body, r.Header); err != nil {
				a.wrong = append(a.wrong, err.Error())
			}
		}
		if json.Unmarshal(body, &m) != nil || json.Unmarshal(m.Data, &resource) != nil {
			a.wrong = append(a.wrong, string(body))
		}
		a.messages[m.Type+" "+resource.ID.String()] = m.Data
		a.sent[r.Header.Get("webhook-id")]++
		w.WriteHeader(status)
	}))
	t.Cleanup(a.Close)
	return a
}

// times returns how often an event has come.
func (a *told) times(event string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent[event]
}

func (a *told) of(kind string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.messages {
		if strings.HasPrefix(name, kind+" ") {
			n++
		}
	}
	return n
}

// toldApp makes an endpoint of a client for everything, and the app behind it.
func toldApp(t *testing.T, s *fleet.System, client string) *told {
	t.Helper()
	secret, id := sender.NewSecret(), uuidv7.New()
	key, err := standardwebhooks.NewWebhook(secret)
	servers.NoError(t, err)
	ring, err := keyring.Parse(s.Settings.Draw.SecretKey, "")
	servers.NoError(t, err)
	a := receive(t, http.StatusOK, key)
	err = postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := webhook.Create(t.Context(), tx, webhook.Endpoint{ID: id, Client: client, URL: a.URL, Events: []string{"*"}}, webhook.Seal(ring, id, secret), 16)
		return err
	})
	servers.NoError(t, err)
	return a
}

// tellingLoopback lets workers tell apps of a test, however slow these are.
var tellingLoopback = []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_WEBHOOKS_TIMEOUT=5m"}

// From the request to the message: what an app is told is what GET shows it.
func TestAnAppIsToldWhatGetShows(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: tellingLoopback})
	app, other := toldApp(t, s, "shop"), toldApp(t, s, "stranger")
	id := s.Campaign(3)
	buy := func(user string, layer int) fleet.Answer {
		return s.Buy(fleet.Order{Campaign: id, User: user, Layer: layer, Wait: true})
	}
	mustAnswer(t, "the only one of layer 1", buy("mina", 1), coded(""))
	mustAnswer(t, "another of layer 1", buy("late", 1), job.Failed)
	for range 5 {
		mustAnswer(t, "the others", buy("mina", 0), coded(""))
	}
	s.AwaitDrawn(id)
	servers.Eventually(t, "an app is told of everything", func() bool {
		return app.of("purchase.completed") == 6 && app.of("campaign.sold_out") == 1 && app.of("campaign.drawn") == 1 &&
			app.of("job.failed") == 1 && other.of("campaign.drawn") == 1
	})
	app.mu.Lock()
	defer app.mu.Unlock()
	for name, data := range app.messages {
		kind, resource, _ := strings.Cut(name, " ")
		path := map[string]string{"purchase.completed": "/v1/purchases/", "campaign.drawn": "/v1/campaigns/", "job.failed": "/v1/jobs/"}[kind]
		if path == "" {
			continue // it was drawing, and is completed
		}
		if shown := s.Read(path + resource); !same(t, shown.Body, data) {
			t.Errorf("%s: told\n%s\nshown\n%s", name, data, shown.Body)
		}
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	for name := range other.messages {
		if !strings.HasPrefix(name, "campaign.") {
			t.Errorf("an anonymous caller is told of %s", name)
		}
	}
	for _, wrong := range append(app.wrong, other.wrong...) {
		t.Error(wrong)
	}
}

// same reports whether two documents say the same.
func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	servers.NoError(t, errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)))
	return reflect.DeepEqual(x, y)
}

// Two users of an app and the app itself use one idempotency key, each for a request of its own.
func TestAnAppHearsOfItsUsersAndSeesTheirJobsAndTheyOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: slices.Concat(tellingLoopback, fleet.Trusting.Env, []string{"TRIPRIZE_TOKENS_CLIENT=shop"})})
	shop, other, id := s.NewKey("shop"), s.NewKey("other"), s.Campaign(4)
	mina, otto := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "otto", "")
	heard, unheard := toldApp(t, s, "shop"), toldApp(t, s, "other")
	servers.Exec(t, s.DB, `UPDATE webhook_endpoints SET verified_at = clock_timestamp()`)
	post := func(credential, key, path, body string) fleet.Answer {
		t.Helper()
		return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key, "Prefer": fleet.UntilFinal}, fleet.RawJSON(body))
	}
	buy := func(credential, key, user string) fleet.Answer {
		t.Helper()
		return post(credential, key, "/v1/campaigns/"+id.String()+"/purchases", `{"user_id":"`+user+`","selection":{"quantity":1},"payment":{"method":"wallet"}}`)
	}
	mustAnswer(t, "a wallet", post(shop, "one", "/v1/wallets", `{"owner_id":"mina","currency":"JPY","initial_balance":5000}`), 201)
	minas, ottos, apps := buy(mina, "one", "mina"), buy(otto, "one", "otto"), buy(shop, "two", "mina")  // otto has no wallet
	hold := post(mina, "two", "/v1/campaigns/"+id.String()+"/holds", `{"user_id":"mina","quantity":1}`) // the app's key, and not its request
	mustAnswer(t, "mina's", minas, job.Succeeded)
	mustAnswer(t, "otto's", ottos, job.Failed)
	mustAnswer(t, "the app's", apps, job.Succeeded)
	mustAnswer(t, "a hold", hold, 201)
	wantAnswer(t, "repeated", buy(mina, "one", "mina"), minas.ID, isReplayed)
	others := buyAs(s, other, id, "anna", "external", "") // the other app hears of its own only
	hears := func(a *told) (what []string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for name := range a.messages {
			if kind, _, _ := strings.Cut(name, "."); kind == "purchase" || kind == "hold" || kind == "job" {
				what = append(what, name)
			}
		}
		slices.Sort(what)
		return what
	}
	all := []string{"purchase.completed " + minas.Result.PurchaseID.String(), "purchase.completed " + apps.Result.PurchaseID.String(), "job.failed " + ottos.ID.String(), "hold.created " + hold.ID.String()}
	slices.Sort(all)
	servers.Eventually(t, "both apps hear of what is theirs", func() bool { return len(hears(heard)) >= len(all) && len(hears(unheard)) >= 1 })
	if got := hears(heard); !slices.Equal(got, all) {
		t.Errorf("heard of %v, want %v", got, all)
	}
	if got := hears(unheard); !slices.Equal(got, []string{"purchase.completed " + others.Result.PurchaseID.String()}) {
		t.Errorf("another app has heard of %v", got)
	}

	for what, c := range map[string]struct {
		credential string
		job        uuid.UUID
		status     int
		lists      bool
	}{
		"the app, of its user": {shop, minas.ID, 200, true}, "a user, of its own": {mina, minas.ID, 200, true}, "a user, of another": {otto, minas.ID, 404, false},
		"a user, of its app's for it": {mina, apps.ID, 404, false}, "another app": {other, minas.ID, 404, false},
	} {
		wantAnswer(t, what, s.Do(0, c.credential, http.MethodGet, "/v1/jobs/"+c.job.String(), nil, nil), c.status)
		if ids, _ := elements(t, s.Do(0, c.credential, http.MethodGet, "/v1/jobs?user_id=mina", nil, nil)); slices.Contains(ids, c.job.String()) != c.lists {
			t.Errorf("%s: the list has %v", what, ids)
		}
	}
}
