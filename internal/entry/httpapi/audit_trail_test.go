package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/internal/trail"
)

// newChange is newCommand for an operator, of every operation that changes something.
func newChange(s *fleet.System, operation string) (method string, c command) {
	s.T.Helper()
	method, c.credential = http.MethodPost, s.Operator
	switch operation {
	case "patchCampaign":
		method, c.path, c.body = http.MethodPatch, "/v1/campaigns/"+s.Campaign(3).String(), fleet.Fields{"name": "Another name"}
	case "releaseHold":
		method, c.path = http.MethodDelete, "/v1/holds/"+s.MustHold(fleet.HoldOrder{Campaign: s.Campaign(3), User: uuid.NewString(), Quantity: 1}).ID.String()
	case "patchWebhookEndpoint", "deleteWebhookEndpoint":
		c.path = endpointsPath + "/" + asked(s, s.Operator, endpointsPath, uuid.NewString(), endpointBody("*")).ID.String()
		if method = http.MethodDelete; operation == "patchWebhookEndpoint" {
			method, c.body = http.MethodPatch, fleet.Fields{"description": "another"}
		}
	case "runSweep":
		c.path = "/v1/sweeps/old-records"
	case "revokeKey":
		c.path = "/v1/keys/" + prefixOf(s.NewKey("spare")) + "/revoke"
	case "resolveRefunds":
		campaign := s.Campaign(3)
		waitingRefund(s, campaign, "failed", false)
		c.path, c.body = "/v1/campaigns/"+campaign.String()+"/refunds/resolve", allByHand(s, campaign, "card")
	case "resolveRefund": // one that the provider has refused
		id := waitingRefund(s, s.Campaign(3), "failed", false)
		c.path, c.body = "/v1/refunds/"+id.String()+"/resolve", byHand(s, id.String())
	default:
		c = newCommand(s, operation, s.Operator)
		c.credential = s.Operator
	}
	return method, c
}

// elsewhere are the operations that have a test of their own.
var elsewhere = []string{"submitDrawRound", "approveRequest", "rejectRequest"}

// Each change by an operator makes one row, with who, what, why and what it was about, and its repetition none. What
// is refused, and what an app does, makes none.
func TestEveryChangeByAnOperatorIsInTheTrail(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, takingCards)})
	prefix, client := strings.Split(s.Operator, "_")[1], s.Client("ops")
	var changing []string
	for _, o := range operations(t) {
		if o.Method == http.MethodGet || !slices.Contains(o.Roles, "operator") && !isForPersons(o) {
			continue
		}
		if changing = append(changing, o.ID); slices.Contains(elsewhere, o.ID) {
			continue
		}
		method, c := newChange(s, o.ID)
		headers := map[string]string{"Idempotency-Key": uuid.NewString(), "Triprize-Reason": url.PathEscape("Grund: " + o.ID + " ü"), "Triprize-Operator": "Ada%20L."}
		if !o.NeedsKey {
			delete(headers, "Idempotency-Key")
		}
		before := count(s, `SELECT count(*) FROM audit_trail`)
		a := s.Do(0, c.credential, method, c.path, headers, c.body)
		if a.Status >= 300 {
			t.Errorf("%s: %v %s", o.ID, a, a.Body)
			continue
		}
		if o.NeedsKey { // and once more
			s.Do(0, c.credential, method, c.path, headers, c.body)
			s.Do(0, c.credential, method, c.path, headers, fleet.Fields{"reason": "another", "name": "another"})
		}
		if n := count(s, `SELECT count(*) FROM audit_trail`) - before; n != 1 {
			t.Errorf("%s makes %d rows", o.ID, n)
			continue
		}
		list, _, err := trail.List(t.Context(), s.DB, trail.Filter{}, postgres.ListPage{Limit: 1})
		servers.NoError(t, err)
		e := list[0]
		about := strings.Split(strings.TrimPrefix(strings.TrimPrefix(c.path, "/v1/"), "books/"), "/") // its resource, or that which it makes
		if o.ID == "eraseUser" {                                                                      // the trail has no id of a user: it is about the job
			about = about[:1]
		}
		if e.Operation != o.ID || e.Reason != "Grund: "+o.ID+" ü" || e.Operator != "Ada L." || e.KeyPrefix != prefix || e.Client != client || e.Via != "api" ||
			e.Address != "127.0.0.1" || len(about) > 1 && e.Target != about[1] || len(about) == 1 && e.Target != a.ID.String() || (e.JobID != nil) != o.NeedsKey {
			t.Errorf("%s: %+v", o.ID, e)
		}
		if o.ID != "runSweep" && o.ID != "requestDraw" && e.Before+e.After == "" {
			t.Errorf("%s does not say what has changed", o.ID)
		}
	}
	if slices.Sort(changing); !slices.Equal(changing, slices.Sorted(slices.Values(trail.Operations))) {
		t.Errorf("operators change something by %v; recorded are %v", changing, trail.Operations)
	}

	before := count(s, `SELECT count(*) FROM audit_trail`)
	id := s.Campaign(3)
	s.Buy(fleet.Order{Campaign: id, User: "u"})
	s.Wallet("u", 5)
	wantAnswer(t, "what an app may not", s.Do(0, s.App, http.MethodPost, "/v1/campaigns/"+id.String()+"/pause", map[string]string{"Idempotency-Key": "k"}, nil), 403)
	wantAnswer(t, "what is refused for good", s.Post("/v1/campaigns/"+id.String()+"/publish", nil), 409)
	for header, texts := range map[string][]string{"Triprize-Reason": {strings.Repeat("%C3%BC", 501), "a%00"}, "Triprize-Operator": {strings.Repeat("x", 101), "%0A", "%FF", "%zz"}} {
		for _, wrong := range texts {
			a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/audit", map[string]string{header: wrong}, nil)
			wantAnswer(t, header+": "+wrong, a, 400, coded("invalid-request"), `"pointer":"`+header+`"`)
		}
	}
	if n := count(s, `SELECT count(*) FROM audit_trail`) - before; n != 0 {
		t.Errorf("apps, and what is refused, make %d rows", n)
	}
}

// A form of the console is a change as any other, by the name of the session. The page shows it.
func TestTheConsoleIsInTheTrailAndShowsIt(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	b, id := signIn(s), s.Campaign(3).String()
	wantAnswer(t, "a form", b.post("/campaigns/"+id+"/pause", "/reason", "the hall <burns>"), 303)
	for range 2 { // the second changes nothing
		wantAnswer(t, "renamed", s.Do(0, s.Operator, http.MethodPatch, "/v1/campaigns/"+id, map[string]string{"Triprize-Operator": "Ada"}, fleet.Fields{"name": "B"}), 200)
	}
	page := b.get("/trail?target=" + strings.ToUpper(id))
	for text, n := range map[string]int{"Mina": 2, "pauseCampaign": 3, "the hall &lt;burns&gt;": 1, "patchCampaign": 4, ", console</small>": 1, ", api</small>": 2,
		"{&#34;name&#34;:&#34;B&#34;}": 1, "not sealed yet": 3, "revokeKey": 2, "key rotate-draw-secrets": 1, "Next page": 0} {
		if got := strings.Count(string(page.Body), text); got != n {
			t.Errorf("%q is there %d times, want %d:\n%s", text, got, n, page.Body)
		}
	}
	prefix := prefixOf(s.Operator)
	for query, n := range map[string]int{"operator=Ada": 2, "operator=Mina&since=2020-01-01T00:00:00Z": 1, "operation=pauseCampaign": 1, "key=" + prefix: 3, "key=" + prefix + "&operation=patchCampaign&operator=Ada": 2,
		"key=000000000000": 0, "operator=ada": 0, "until=2020-01-01T00:00:00Z": 0, "since=2120-01-01T00:00:00Z": 0} {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/audit-trail?target="+id+"&"+query, nil, nil)
		wantEqual(t, query, strings.Count(string(a.Body), `"operation":`), n)
	}
	wantAnswer(t, "the page of a key", b.get("/trail?key="+prefix+"&operation=pauseCampaign&since=2020-01-01T00:00&target="+id), 200, "the hall", without("{&#34;name"), `value="2020-01-01T00:00"`)
	wantAnswer(t, "a wrong time", b.get("/trail?since=now"), 400)
}

// A change whose row cannot be written is not made.
func TestAChangeAndItsRowAreOneTransaction(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id, victim := s.Campaign(3), prefixOf(s.NewKey("spare"))
	exec(s, `ALTER TABLE audit_trail ADD CHECK (false) NOT VALID`)
	for _, path := range []string{"/v1/campaigns/" + id.String() + "/pause", "/v1/keys/" + victim + "/revoke"} {
		if a := s.Post(path, nil); a.Status < 500 {
			t.Errorf("%s: %v", path, a)
		}
	}
	wantEqual(t, "changes", count(s, `SELECT count(*) FROM campaigns, api_keys WHERE id = $1 AND (paused_at IS NOT NULL OR prefix = $2 AND revoked_at IS NOT NULL)`, id, victim), 0)
}

// Two who change an endpoint at once are two rows, the second of which begins with what the first has left.
func TestARowHasWhatWasThereWhenItsChangeWasMade(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: everyday})
	id := endpointOf(s, asked(s, s.App, endpointsPath, "e", endpointBody("*")), 201).ID.String()
	tx, err := s.DB.Begin(t.Context())
	servers.NoError(t, err)
	servers.Exec(t, tx, `UPDATE webhook_endpoints SET description = 'of the first' WHERE id = $1`, id)
	changed := make(chan fleet.Answer, 1)
	go func() {
		changed <- s.Do(0, s.Operator, http.MethodPatch, endpointsPath+"/"+id, nil, fleet.Fields{"description": "of the second"})
	}()
	servers.AwaitBlocked(t, s.DB, 1)
	servers.NoError(t, tx.Commit(t.Context()))
	wantAnswer(t, "the second", <-changed, 200, "of the second")
	wantEqual(t, "before it", servers.Value[string](t, s.DB, `SELECT x.text FROM audit_trail a JOIN audit_texts x ON 'sha256:' || encode(x.hash, 'hex') = a.before ->> 'description' WHERE target = $1`, id), `"of the first"`)
}
