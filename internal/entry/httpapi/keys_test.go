package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

func prefixOf(key string) string { return strings.Split(key, "_")[1] }

func TestAnOperatorRevokesKeysOverTheAPI(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	revoke := func(prefix string, body any) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodPost, "/v1/keys/"+prefix+"/revoke", nil, body)
	}
	old, next := s.NewKey("leaky"), s.NewKey("leaky")
	endpoint := endpointsPath + "/" + endpointOf(s, asked(s, old, endpointsPath, "e", endpointBody("*")), 201).ID.String()
	wantEndpoint := func(what, state string) {
		wantAnswer(t, what, s.Do(0, s.Operator, http.MethodGet, endpoint, nil, nil), 200, `"state":"`+state+`"`)
	}
	wantAnswer(t, "the list", s.Do(0, s.Operator, http.MethodGet, "/v1/keys", nil, nil), 200, prefixOf(old), prefixOf(s.Operator), without(strings.Split(old, "_")[2]))
	refused(t, "no key", revoke("000000000000", nil), 404, "not-found")
	refused(t, "itself", revoke(prefixOf(s.Operator), nil), 409, "state-conflict")
	for what, successor := range map[string]string{"another client's": prefixOf(s.App), "itself": prefixOf(old), "unknown": "ffffffffffff"} {
		p := refused(t, what, revoke(prefixOf(old), map[string]any{"transfer_endpoints_to": successor}), 400, "invalid-request")
		wantEqual(t, what, p.Errors[0].Pointer, "/transfer_endpoints_to")
	}
	wantEqual(t, "what a refused revocation has revoked", count(s, `SELECT count(*) FROM api_keys WHERE client = $1 AND revoked_at IS NOT NULL`, s.Client("leaky")), 0)

	first := revoke(prefixOf(old), map[string]any{"transfer_endpoints_to": prefixOf(next)})
	mustAnswer(t, "with a successor", first, 200, `"prefix":"`+prefixOf(old)+`"`, without(`"revoked_at":null`))
	wantEndpoint("the transferred endpoint", "unverified")
	_, revokedAt, _ := strings.Cut(string(first.Body), "revoked_at") // its last member
	wantAnswer(t, "once more", revoke(prefixOf(old), nil), 200, revokedAt)
	mustAnswer(t, "its successor", revoke(prefixOf(next), nil), 200)
	wantEndpoint("the endpoint of a key without a successor", "disabled")
}

func TestTheConsoleRevokesAKeyWhosePrefixIsTyped(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	b, victim, own := signIn(s), prefixOf(s.NewKey("shop")), prefixOf(s.Operator)
	page := "/keys/" + victim + "/revoke"
	wantAnswer(t, "the list", b.get("/keys"), 200, `href="/console`+page+`"`, without("/console/keys/"+own+"/revoke"), "triprize key create")
	wantAnswer(t, "the form", b.get(page), 200, `name="typed"`, `action="/console`+page+`"`)
	wantAnswer(t, "nothing is typed", b.post(page, "/reason", "leaked"), 400, "type exactly: "+victim, `value="leaked"`)
	wantAnswer(t, "a wrong successor", b.post(page, "typed", victim, "/reason", "leaked", "/transfer_endpoints_to", "ffffffffffff"), 400, "no other key of the same client", `value="ffffffffffff"`)
	wantAnswer(t, "its own key", b.post("/keys/"+own+"/revoke", "typed", own, "/reason", "x"), 409, "cannot revoke itself")
	wantAnswer(t, "the revocation", b.post(page, "typed", victim, "/reason", "leaked"), 303, valued{"Location", "/console/keys?done=1"})
	wantAnswer(t, "the list after it", b.get("/keys?done=1"), 200, "Done.", without("/console"+page))
}

func TestASessionOfTheConsoleOpensAsynqmonUntilItEnds(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	b := signIn(s)
	ask := func(method, path string, header ...string) fleet.Answer {
		return s.Do(0, "", method, path, map[string]string{"Cookie": b.cookie, "Sec-Fetch-Site": append(header, "same-origin")[0], "Authorization": append(header, "", "")[1]}, nil)
	}
	wantAnswer(t, "the page", ask(http.MethodGet, "/asynqmon"), 200)
	wantAnswer(t, "its data", ask(http.MethodGet, "/asynqmon/api/queues"), 200)
	pause := "/asynqmon/api/queues/" + s.Settings.Redis.Namespace + "-purchase:pause"
	wantAnswer(t, "a pause", ask(http.MethodPost, pause), http.StatusMethodNotAllowed) // it is read-only
	wantAnswer(t, "a pause from another site", ask(http.MethodPost, pause, "cross-site"), http.StatusForbidden)
	wantAnswer(t, "a wrong password beside it", ask(http.MethodGet, "/asynqmon", "same-origin", basic("tp_x")), 401)
	mustAnswer(t, "signing out", b.post("/sign-out"), 303)
	wantAnswer(t, "after that", ask(http.MethodGet, "/asynqmon"), 401)
}
