package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const endpointsPath = "/v1/webhook-endpoints"

// endpointView is what the tests read of an endpoint.
type endpointView struct {
	ID             uuid.UUID
	Client, URL    string
	Events         []string
	Description    *string
	State          string
	DisabledReason *string `json:"disabled_reason"`
	Secret         string
	Secrets        []struct {
		CreatedAt time.Time  `json:"created_at"`
		ExpiresAt *time.Time `json:"expires_at"`
	}
}

// endpointOf decodes an endpoint and fails the test unless the status is as wanted.
func endpointOf(s *fleet.System, a fleet.Answer, status int) endpointView {
	s.T.Helper()
	mustAnswer(s.T, "", a, status)
	return decoded[endpointView](s, a)
}

// asked sends a POST with a key. Like a client it comes again with what was not begun
// because too many wait for locks.
func asked(s *fleet.System, credential, path, key string, body any) fleet.Answer {
	s.T.Helper()
	for end := time.Now().Add(servers.Patience); ; {
		a := s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": key}, body)
		if a.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return a
		}
	}
}

func endpointBody(events ...string) map[string]any {
	return map[string]any{"url": "https://shop.example/triprize", "events": events}
}

// endpointAt makes an endpoint of the app and returns its path.
func endpointAt(s *fleet.System, address string, events ...string) (path string) {
	s.T.Helper()
	made := asked(s, s.App, endpointsPath, uuid.NewString(), map[string]any{"url": address, "events": events})
	return endpointsPath + "/" + endpointOf(s, made, http.StatusCreated).ID.String()
}

// tell sends a command about an endpoint, as the app.
func tell(s *fleet.System, path string, body any) endpointView {
	s.T.Helper()
	return endpointOf(s, asked(s, s.App, path, uuid.NewString(), body), http.StatusOK)
}

func TestASecretIsShownOnceAndStoredNowhereElse(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	made := asked(s, s.App, endpointsPath, "create", endpointBody("purchase.*"))
	e := endpointOf(s, made, http.StatusCreated)
	path := endpointsPath + "/" + e.ID.String()
	if made.Header.Get("Location") != path || e.State != "unverified" || len(e.Secrets) != 1 || e.Secrets[0].ExpiresAt != nil {
		t.Errorf("made: %s, Location %q", made.Body, made.Header.Get("Location"))
	}
	rotation := map[string]any{"overlap_seconds": 60}
	rotated := asked(s, s.App, path+"/rotate-secret", "rotate", rotation)
	second := endpointOf(s, rotated, http.StatusOK)
	if e.Secret == second.Secret || len(second.Secrets) != 2 || second.Secrets[0].ExpiresAt != nil || second.Secrets[1].ExpiresAt == nil {
		t.Errorf("rotated: %s", rotated.Body)
	}
	for what, a := range map[string]fleet.Answer{
		"created again": asked(s, s.App, endpointsPath, "create", endpointBody("purchase.*")), "rotated again": asked(s, s.App, path+"/rotate-secret", "rotate", rotation),
		"read": s.Read(path), "listed": s.Read(endpointsPath), "read by an operator": s.Do(0, s.Operator, http.MethodGet, path, nil, nil),
	} {
		if a.Status/100 != 2 || fleet.Contains(a.Body, "whsec_") || !fleet.Contains(a.Body, e.ID.String()) {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	for _, secret := range []string{e.Secret, second.Secret} {
		text, ok := strings.CutPrefix(secret, "whsec_")
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) < 24 || !ok {
			t.Errorf("the secret %q: %v", secret, err)
		}
		for _, table := range []string{"jobs", "webhook_endpoints", "webhook_secrets"} {
			wantEqual(t, fmt.Sprintf("rows with a secret in %s", table), count(s, `SELECT count(*) FROM `+table+` r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, encode($2, 'hex')) > 0`, text, raw), 0)
		}
	}
}

func TestAnAppSeesAndChangesItsOwnEndpointsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	stranger, body := s.NewKey("another"), endpointBody("*")
	body["client"] = s.Client("shop")
	refused(t, "an app makes an endpoint for another client", asked(s, stranger, endpointsPath, "b", body), 403, "forbidden")
	body["client"] = s.Client("another")
	theirs := endpointOf(s, asked(s, s.Operator, endpointsPath, "b", body), http.StatusCreated)
	if a := s.Do(0, stranger, http.MethodGet, endpointsPath+"/"+theirs.ID.String(), nil, nil); theirs.Client != s.Client("another") || a.Status != http.StatusOK {
		t.Errorf("an operator made an endpoint for %q, and its client gets %v", theirs.Client, a)
	}
	refused(t, "another client's", s.Read(endpointsPath+"/"+theirs.ID.String()), 404, "not-found")
}

func TestAnEndpointIsChangedDisabledEnabledAndDeleted(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := endpointBody("purchase.*", "campaign.drawn")
	body["description"] = "the shop"
	made := asked(s, s.App, endpointsPath, "a", body)
	path := endpointsPath + "/" + made.ID.String()
	const both = `"events":["purchase.*","campaign.drawn"]`
	wantAnswer(t, "made", made, 201, both, `"description":"the shop"`, `"url":"https://shop.example/triprize"`)
	patch := func(change map[string]any) fleet.Answer { return s.Do(0, s.App, http.MethodPatch, path, nil, change) }
	wantAnswer(t, "another URL", patch(map[string]any{"url": "https://shop.example/other"}), 200, `"url":"https://shop.example/other"`, both, `"description":"the shop"`)
	wantAnswer(t, "other events, no description", patch(map[string]any{"events": []string{"*"}, "description": nil}), 200, `"events":["*"]`, `"description":null`)
	wantAnswer(t, "disabled", asked(s, s.App, path+"/disable", "off", nil), 200, `"state":"disabled"`, `"disabled_reason":"asked"`)
	for _, what := range []string{"/test", "/deliveries/" + uuid.NewString() + "/replay"} {
		refused(t, what+" of a disabled one", asked(s, s.App, path+what, what, nil), 409, "state-conflict")
	}
	wantAnswer(t, "enabled", asked(s, s.App, path+"/enable", "on", nil), 200, `"state":"unverified"`, `"disabled_reason":null`)
	wantAnswer(t, "deleted", s.Do(0, s.App, http.MethodDelete, path, nil, nil), 204)
	refused(t, "after that", s.Read(path), 404, "not-found")
}

func TestBadEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	path := endpointAt(s, "https://shop.example/triprize", "*")
	for name, c := range map[string]struct {
		field   string
		value   any
		pointer string
	}{
		"no URL":                  {"url", nil, "/url"},
		"http":                    {"url", "http://shop.example/", "/url"},
		"loopback":                {"url", "https://[::1]/", "/url"},
		"private":                 {"url", "https://10.1.2.3/", "/url"},
		"a user":                  {"url", "https://jane:secret@shop.example/", "/url"},
		"a port of mail":          {"url", "https://shop.example:25/", "/url"},
		"a test cannot be wanted": {"events", []string{"webhook-endpoint.test"}, "/events/0"},
	} {
		body := endpointBody("purchase.*")
		body[c.field] = c.value
		for what, a := range map[string]fleet.Answer{"made": asked(s, s.App, endpointsPath, uuid.NewString(), body), "changed": s.Do(0, s.App, http.MethodPatch, path, nil, map[string]any{c.field: c.value})} {
			if p := refused(t, name+", "+what, a, 400, "invalid-request"); p.Errors[0].Pointer != c.pointer {
				t.Errorf("%s, %s: %+v", name, what, p.Errors)
			}
		}
	}
	refused(t, "a span that ends before it begins", asked(s, s.App, path+"/replay", "backwards", map[string]any{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}), 400, "invalid-request")
	refused(t, "an overlap of more than a week", asked(s, s.App, path+"/rotate-secret", "long", map[string]any{"overlap_seconds": 604801}), 400, "invalid-request")
}

func TestAnOldSecretSignsAsLongAsTheRotationSays(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for body, want := range map[string]time.Duration{`{"overlap_seconds":60}`: time.Minute, `{"overlap_seconds":0}`: 0, `{}`: 24 * time.Hour} {
		e, got := tell(s, endpointAt(s, "https://shop.example/triprize", "*")+"/rotate-secret", fleet.RawJSON(body)), time.Duration(0)
		if len(e.Secrets) == 2 && e.Secrets[1].ExpiresAt != nil {
			got = e.Secrets[1].ExpiresAt.Sub(e.Secrets[0].CreatedAt).Round(time.Minute) // both moments are of one transaction, or near to it
		}
		if got != want || e.Secrets[0].ExpiresAt != nil || want == 0 && len(e.Secrets) != 1 {
			t.Errorf("%s: the old one signs for %s: %+v", body, got, e)
		}
	}
}

// toLoopback lets events be sent to receivers in this process.
var toLoopback = fleet.Options{Env: append([]string{"TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=100ms"}, tellingLoopback...)}

// deliveryView is what the tests read of a delivery.
type deliveryView struct {
	ID   string `json:"event_id"`
	Type string
	At   time.Time
}

// deliveries are the newest of an endpoint.
func deliveries(s *fleet.System, path, query string) []deliveryView {
	s.T.Helper()
	return fleet.As[struct{ Deliveries []deliveryView }](s.T, s.Read(path+"/deliveries?"+query)).Deliveries
}

// noted waits until so many deliveries of an endpoint are in a state.
func noted(s *fleet.System, path, state string, n int) (all []deliveryView) {
	s.T.Helper()
	servers.Eventually(s.T, fmt.Sprintf("%d deliveries that are %s", n, state), func() bool {
		all = deliveries(s, path, "state="+state)
		return len(all) == n
	})
	return all
}

func TestDeliveriesAreFoundByStateAndTypeInPages(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, toLoopback)
	good, bad := receive(t, http.StatusNoContent, nil), receive(t, http.StatusInternalServerError, nil)
	path := endpointAt(s, good.URL, "wallet.*")
	other := endpointAt(s, good.URL, "wallet.*") // its deliveries are in no list of the first
	wallet := s.Wallet("mina", 1000)
	move := func(kind string) { s.Execute(wallet+"/"+kind, fleet.Fields{"amount": 1}) }
	move("debit")
	noted(s, path, "delivered", 2)
	noted(s, other, "delivered", 2)
	endpointOf(s, s.Do(0, s.App, http.MethodPatch, path, nil, map[string]any{"url": bad.URL}), http.StatusOK)
	move("debit")
	move("credit")
	noted(s, path, "pending", 2) // after the first attempt there are others
	types := func(query string) (all string) {
		for _, d := range deliveries(s, path, query) {
			all += " " + strings.TrimPrefix(d.Type, "wallet.")
		}
		return all
	}
	for query, want := range map[string]string{
		"": " credit debit debit credit", "state=delivered": " debit credit", "state=pending": " credit debit", "state=failed": "",
		"type=wallet.credit": " credit credit", "type=wallet.void": "", "state=delivered&type=wallet.credit": " credit",
	} {
		wantEqual(t, fmt.Sprintf("%q", query), types(query), want)
	}
	tell(s, path+"/disable", nil)
	failed := noted(s, path, "failed", 2) // disabled: given up
	// Repaired: what has failed is sent again, and nothing else.
	endpointOf(s, s.Do(0, s.App, http.MethodPatch, path, nil, map[string]any{"url": good.URL}), http.StatusOK)
	tell(s, path+"/enable", nil)
	mustAnswer(t, "", asked(s, s.App, path+"/replay", "r", map[string]any{"from": failed[1].At.Add(-time.Hour), "to": failed[0].At.Add(time.Hour), "state": "failed"}), 200, `"replayed":2,`)
	noted(s, path, "delivered", 4)
}

func TestASpanIsReplayedByTimeTypeAndWhetherItWasMissed(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, toLoopback)
	shop := receive(t, http.StatusNoContent, nil)
	path := endpointAt(s, shop.URL, "wallet.*")
	observer := endpointAt(s, shop.URL, "wallet.*") // knows which events there are
	wallet := s.Wallet("mina", 1000)
	heard := noted(s, path, "delivered", 1)
	tell(s, path+"/disable", nil)
	for _, kind := range []string{"debit", "credit", "debit"} {
		s.Execute(wallet+"/"+kind, fleet.Fields{"amount": 1})
	}
	all := noted(s, observer, "delivered", 4)
	slices.Reverse(all) // credit, debit, credit, debit: the oldest first
	tell(s, path+"/enable", nil)
	if got := deliveries(s, path, ""); len(got) != 1 || got[0].ID != heard[0].ID {
		t.Fatalf("what was missed came by itself: %v", got)
	}
	text := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
	begin, end := text(all[0].At.Add(-time.Hour)), text(all[3].At.Add(time.Hour))
	for _, c := range []struct {
		what  string
		body  map[string]any
		again []int // of all
	}{
		{"nothing has failed", map[string]any{"from": begin, "to": end, "state": "failed"}, nil},
		{"before the first", map[string]any{"from": begin, "to": text(all[0].At)}, nil}, // to is not in it
		{"missed, of a type", map[string]any{"from": begin, "to": end, "types": []string{"wallet.credit"}, "state": "missed"}, []int{2}},
		{"missed, up to the last", map[string]any{"from": begin, "to": text(all[3].At), "state": "missed"}, []int{1}},
		{"missed", map[string]any{"from": begin, "to": end, "state": "missed"}, []int{3}},
		{"delivered, from the third on", map[string]any{"from": text(all[2].At), "to": end, "state": "delivered"}, []int{2, 3}},
		{"all of a type", map[string]any{"from": begin, "to": end, "types": []string{"wallet.debit"}}, []int{1, 3}},
	} {
		before := make(map[string]int)
		for _, d := range all {
			before[d.ID] = shop.times(d.ID)
		}
		if a := asked(s, s.App, path+"/replay", c.what, c.body); a.Status != http.StatusOK || !fleet.Contains(a.Body, fmt.Sprintf(`"replayed":%d,`, len(c.again))) {
			t.Fatalf("%s: %v %s, want %d", c.what, a, a.Body, len(c.again))
		}
		noted(s, path, "pending", 0)
		for i, d := range all {
			if came := shop.times(d.ID) > before[d.ID]; came != slices.Contains(c.again, i) { // once more, or more than once: a slow answer is none
				t.Errorf("%s: event %d came again: %t", c.what, i, came)
			}
		}
	}
}
