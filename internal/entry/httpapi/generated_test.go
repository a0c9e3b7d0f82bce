package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// serverLimits are the bounds of this server that no schema of the contract says;
// most stand in its descriptions, and the maker of requests does not read which fields
// exclude each other.
var serverLimits = regexp.MustCompile(`must be 3 to 1000, and a campaign has|positions at most in all|must say how many positions|leave out base_length|or number alone|the campaign has positions|was sent twice|positions per user|must have every layer|every layer 1 to|minor units|has room for|ISO 4217|must be after sale_starts_at|it needs sale_ends_at|keys and values together|` +
	`must be in the years|without a public beacon|must be at most 100"|must be at most 20"|must have exactly one of|in all"|there is no position|the campaign has layers|goes with quantity only|has columns 1 to|must be 1 to 600|with the method card|must state the reason|must state how|must be one of: body-too-large|requires state failed|must be after from|must be types of events|is not of this stream|must be those of the stream|is not the signature of round`)

// Every operation gets the same number of requests, and the same ones in every run.
func TestGeneratedRequestsGetAnswersThatTheContractPromises(t *testing.T) {
	t.Parallel()
	rounds := property.Cases(t)
	s := fleet.Start(t, fleet.Options{Env: append([]string{"TRIPRIZE_API_MAX_WAIT=1s", "TRIPRIZE_STREAMS_INTERVAL=50ms", "TRIPRIZE_STREAMS_HEARTBEAT=100ms", "TRIPRIZE_STREAMS_MAX_AGE=200ms", "TRIPRIZE_TOKENS_CLIENT=shop"}, fleet.Trusting.Env...)})
	m := newMaker(t, map[string]string{"operator": s.Operator, "operator again": s.Operator, "operator still": s.Operator, "app": s.App, "mina": fleet.TokenFor(t, "mina", ""), "viewer": fleet.TokenFor(t, "v", "viewer"), "nobody": ""})
	m.start(s)
	for _, o := range m.operations {
		if !m.reaches(t, s.URLs[0], o) {
			t.Errorf("%s: no request as the operator got past the checks of requests", o.OperationID)
		}
	}
	m.oddities, m.who = true, slices.Sorted(maps.Keys(m.credentials))
	for seed := range rounds {
		for _, o := range m.operations {
			m.send(t, s.URLs[0], o, seed)
		}
	}
}

// start gives the maker one of everything to name in a path.
func (m *maker) start(s *fleet.System) {
	s.T.Helper()
	active := s.Campaign(20)
	hold := s.MustHold(fleet.HoldOrder{Campaign: active, User: "mina", At: []shape.Position{{Layer: 3, Column: 1}}})
	bought := s.Buy(fleet.Order{Campaign: active, User: "mina", Wait: true})
	wallet := s.Wallet("mina", 1_000_000)
	authorized := s.Execute(wallet+"/authorizations", fleet.Fields{"amount": 1000})
	if bought.Result.PurchaseID == uuid.Nil || authorized.Status != http.StatusCreated {
		s.T.Fatal(bought, authorized)
	}
	for name, id := range map[string]string{"campaign": active.String(), "hold": hold.ID.String(), "purchase": bought.Result.PurchaseID.String(), "job": bought.ID.String(),
		"wallet": fleet.WalletID(wallet), "authorization": authorized.ID.String(),
		"refund": insertRefund(s, bought.Result.PurchaseID, "external", "listed").String()} {
		m.ids[name] = []string{id}
	}
	for i := range 4 { // one is deleted
		e := endpointOf(s, asked(s, s.Operator, endpointsPath, fmt.Sprintf("endpoint %d", i), endpointBody("*")), http.StatusCreated)
		a := asked(s, s.Operator, endpointsPath+"/"+e.ID.String()+"/test", fmt.Sprintf("test %d", i), nil)
		var test struct {
			EventID uuid.UUID `json:"event_id"`
		}
		if err := json.Unmarshal(a.Body, &test); err != nil || a.Status != http.StatusOK {
			s.T.Fatal(a, err)
		}
		m.ids["endpoint"], m.ids["event"] = append(m.ids["endpoint"], e.ID.String()), append(m.ids["event"], test.EventID.String())
	}
}

// reaches sends plain requests of the operator until one is refused by nothing but
// the state of what it names.
func (m *maker) reaches(t *testing.T, base string, o made) bool {
	t.Helper()
	for seed := range 50 {
		switch m.send(t, base, o, seed).Status {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnsupportedMediaType:
		default:
			return true
		}
	}
	return false
}

// send makes a request from a seed, sends it, and checks and remembers the answer.
func (m *maker) send(t *testing.T, base string, o made, seed int) fleet.Answer {
	t.Helper()
	const bodyLimit, remembered = 1 << 20, 20
	type sent struct {
		*http.Request
		plain bool
	}
	request := rapid.Custom(func(rt *rapid.T) sent {
		request, plain := m.request(rt, base, o)
		return sent{request, plain}
	}).Example(seed)
	a := fleet.Send(request.Request)
	servers.Eventually(t, fmt.Sprintf("%s %s is no longer told to retry", request.Method, request.URL), func() bool {
		if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
			return true
		}
		again := request.Clone(t.Context()) // as a busy server asks for
		again.Body, _ = request.GetBody()
		a = fleet.Send(again)
		return false
	})
	switch {
	case a.Err != nil && request.ContentLength > bodyLimit: // refused by its length, while it was still being sent
		return a
	case a.Err != nil || a.Status >= 500 || a.Status == 0:
		t.Errorf("seed %d: %s %s: %v %s", seed, o.method, request.URL, a, a.Body)
	case o.Responses.Status(a.Status) == nil:
		t.Errorf("seed %d: %s %s: the contract has no such answer: %v %s", seed, o.method, request.URL, a, a.Body)
	case request.plain && a.Status == http.StatusBadRequest && a.Refusal() == "invalid-request" && !serverLimits.Match(a.Body):
		t.Errorf("seed %d: %s %s fits the contract and is refused: %s", seed, o.method, request.URL, a.Body)
	}
	name, id := "purchase", a.Result.PurchaseID
	if id == uuid.Nil {
		name, id = located(a.Header.Get("Location")), a.ID
	}
	if id != uuid.Nil && name != "" && len(m.ids[name]) < remembered {
		m.ids[name] = append(m.ids[name], id.String())
	}
	return a
}

// located tells what a Location header leads to.
func located(location string) (name string) {
	if strings.Contains(location, "/authorizations/") {
		return "authorization"
	}
	if strings.HasPrefix(location, endpointsPath+"/") {
		return "endpoint"
	}
	for _, name := range []string{"campaign", "wallet", "hold", "job"} {
		if strings.HasPrefix(location, "/v1/"+name+"s/") {
			return name
		}
	}
	return ""
}
