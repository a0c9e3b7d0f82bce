package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// told is an app that is told, and knows each message once.
type told struct {
	*httptest.Server
	mu       sync.Mutex
	messages map[string]json.RawMessage // data, by type and the resource's id
	wrong    []string
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
	if err != nil {
		t.Fatal(err)
	}
	a := &told{messages: make(map[string]json.RawMessage)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			Type string
			Data json.RawMessage
		}
		var resource struct{ ID uuid.UUID }
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := key.Verify(body, r.Header); err != nil {
			a.wrong = append(a.wrong, err.Error())
		}
		if json.Unmarshal(body, &m) != nil || json.Unmarshal(m.Data, &resource) != nil {
			a.wrong = append(a.wrong, string(body))
		}
		a.messages[m.Type+" "+resource.ID.String()] = m.Data
	}))
	t.Cleanup(a.Close)
	ring, err := keyring.Parse(s.Settings.Draw.SecretKey, "")
	if err != nil {
		t.Fatal(err)
	}
	err = postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := webhook.Create(t.Context(), tx, webhook.Endpoint{ID: id, Client: client, URL: a.URL, Events: []string{"*"}}, webhook.Seal(ring, id, secret), 16)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tellingLoopback lets workers tell apps of a test.
var tellingLoopback = []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8"}

// From the request to the message: what an app is told is what GET shows it.
func TestAnAppIsToldWhatGetShows(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: tellingLoopback})
	app, other := toldApp(t, s, "shop"), toldApp(t, s, "stranger")
	id := s.Campaign(3)
	const positions = 6
	for i := range positions {
		order := fleet.Order{Campaign: id, User: "mina", Wait: true}
		if i == 0 {
			order.Layer = 1
		}
		if i == 1 {
			s.Buy(fleet.Order{Campaign: id, User: "late", Layer: 1, Wait: true}) // refused
		}
		if a := s.Buy(order); a.Status != http.StatusOK && a.Status != http.StatusAccepted {
			t.Fatal(a)
		}
	}
	s.AwaitDrawn(id)
	servers.Eventually(t, "an app is told of everything", func() bool {
		return app.of(webhook.PurchaseCompleted) == positions && app.of(webhook.CampaignSoldOut) == 1 && app.of(webhook.CampaignDrawn) == 1 &&
			app.of(webhook.JobFailed) == 1 && other.of(webhook.CampaignDrawn) == 1
	})
	app.mu.Lock()
	defer app.mu.Unlock()
	for name, data := range app.messages {
		kind, resource, _ := strings.Cut(name, " ")
		path := map[string]string{webhook.PurchaseCompleted: "/v1/purchases/", webhook.CampaignDrawn: "/v1/campaigns/", webhook.JobFailed: "/v1/jobs/"}[kind]
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
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	one, _ := json.Marshal(x)
	two, _ := json.Marshal(y)
	return string(one) == string(two)
}
