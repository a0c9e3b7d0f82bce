package httpapi_test

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

const goodPurchase = `{"user_id":"a","selection":{"quantity":1},"payment":{"method":"external"}}`

// TestEveryOperationRefusesWhatItDoesNotUnderstand has what is wrong with the requests of all operations.
func TestBadRequestsGetAProblemThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	with := func(old, with string) string { return strings.Replace(goodPurchase, old, with, 1) }
	draft := fleet.CampaignBody(3)
	draft["name"], draft["base_length"], draft["currency"], draft["purchase_limit"] = "", 2, "yen", 0
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               string
		says               []string
	}{
		"a field twice":      {body: with(`{"user_id":"a"`, `{"user_id":"a","user_id":"b"`)},
		"a card without one": {body: with(`external`, `card`), says: []string{"/payment/payment_method"}},
		"no such campaign":   {path: "/v1/campaigns/" + uuid.NewString() + "/purchases", status: 404, code: "not-found"},
		"no such path":       {path: "/v2/campaigns", status: 404, code: "not-found"},
		"no such method":     {method: http.MethodDelete, path: "/v1/campaigns", status: 405, code: "method-not-allowed"},
		"no such position":   {method: http.MethodGet, path: "/v1/campaigns/" + id.String() + "/positions/2/3", status: 404, code: "not-found"},
		"no such job":        {method: http.MethodGet, path: "/v1/jobs/" + uuid.NewString(), status: 404, code: "not-found"},

		"jobs in a state":       {method: http.MethodGet, path: "/v1/jobs?state=done", says: []string{"must be one of: queued, awaiting_action, succeeded, failed"}},
		"a code without failed": {method: http.MethodGet, path: "/v1/jobs?code=sold-out&state=queued", says: []string{"requires state failed"}},
		"a cursor of another":   {method: http.MethodGet, path: "/v1/jobs?cursor=" + uuid.NewString(), says: []string{"must be the next_cursor of an earlier page"}},
		"an empty parameter":    {method: http.MethodGet, path: "/v1/jobs?user_id=", says: []string{"must have at least 1 character"}},
		"a parameter that it does not have": {method: http.MethodGet, path: "/v1/users/mina/purchases?userId=1",
			says: []string{"is not a parameter of this operation (it takes campaign_id, include, cursor, limit)"}},
		"a parameter where there are none": {method: http.MethodGet, path: "/v1/sweeps?state=1", says: []string{"which takes none"}},
		"a long name":                      {method: http.MethodGet, path: "/v1/jobs?" + strings.Repeat("n", 500) + "=1", says: []string{"name that is too long"}},
		"many names":                       {method: http.MethodGet, path: "/v1/jobs?x=1&y=1" + strings.Repeat("&z=1", 99), says: []string{`"pointer":"?y"`}},
		"a version of what has none":       {method: http.MethodPatch, path: "/v1/campaigns/" + id.String(), says: []string{"does not check the version"}},
	} {
		a := s.Do(0, s.Operator, c.method, c.path, map[string]string{"If-Match": `"7"`}, nil)
		if c.method == "" {
			a = raw(s, http.MethodPost, cmp.Or(c.path, path), cmp.Or(c.body, goodPurchase), "", "")
		}
		refused(t, name, a, cmp.Or(c.status, 400), cmp.Or(c.code, "invalid-request"))
		for _, text := range c.says {
			wantAnswer(t, name, a, text)
		}
	}
	all := refused(t, "a draft with nothing right", s.Post("/v1/campaigns", draft), 400, "invalid-request")
	for i, pointer := range []string{"/base_length", "/currency", "/name", "/purchase_limit"} {
		if len(all.Errors) != 4 || all.Errors[i].Pointer != pointer {
			t.Errorf("a draft with nothing right: %+v", all.Errors)
		}
	}
	wantEqual(t, "jobs of bad requests", count(s, `SELECT count(*) FROM jobs WHERE client = ANY($1)`, []string{s.Client("shop"), s.Client("ops")}), 0)
}

// raw sends a request as the operator with a body as it is. An empty key means a
// fresh one, "-" none.
func raw(s *fleet.System, method, path, body, key, media string) fleet.Answer {
	s.T.Helper()
	return rawAs(s, s.Operator, method, path, body, key, media)
}

// rawAs is raw with another credential.
func rawAs(s *fleet.System, credential, method, path, body, key, media string) fleet.Answer {
	s.T.Helper()
	header := map[string]string{"Content-Type": cmp.Or(media, "application/json"), "Authorization": "Bearer " + credential}
	if key = cmp.Or(key, uuid.NewString()); key != "-" {
		header["Idempotency-Key"] = key
	}
	return rawWith(s, method, path, body, header)
}

// rawWith sends a body as it is, with nothing added to it.
func rawWith(s *fleet.System, method, path, body string, header map[string]string) fleet.Answer {
	s.T.Helper()
	request, err := http.NewRequest(method, s.URLs[0]+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return s.Send(request)
}

// The apis wait for Postgres as long as the test for them: only api.request_timeout
// can bring the answer.
func TestARequestThatPostgresHoldsUpIsAnsweredAtItsTimeout(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	s.RunAPI("TRIPRIZE_API_REQUEST_TIMEOUT=100ms")
	id := s.Campaign(3)
	unlock := fixture.LockCampaign(t, s.DB, id)
	wantAnswer(t, "", s.Do(len(s.URLs)-1, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/pause", map[string]string{"Idempotency-Key": "k"}, nil), 503, coded("unavailable"), having("Retry-After"))
	unlock()
	wantAnswer(t, "again with the same key", s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/pause", map[string]string{"Idempotency-Key": "k"}, nil), 200)
}

// nonsense is a value that a parameter cannot have, or empty if it can have any short text.
func nonsense(p *openapi3.Schema) string {
	switch {
	case p.Type.Is("integer") || p.Type.Is("boolean") || p.Format == "uuid" || len(p.Enum) > 0 || p.Pattern != "" && p.MaxLength == nil:
		return "%21"
	case p.MaxLength != nil:
		return strings.Repeat("x", int(*p.MaxLength)+1)
	}
	return ""
}

// Nothing that an operation does not know or understand is taken for something that it does: each names it.
func TestEveryOperationRefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	// The limit of the server is higher than that of each operation: it would close the connection while a client still writes.
	s := fleet.Shared(t, quiet).With("TRIPRIZE_API_BODY_LIMIT_BYTES=2097152", "TRIPRIZE_CAMPAIGNS_MAX_QUANTITY=10", "TRIPRIZE_HOLDS_MAX_POSITIONS=5", "TRIPRIZE_HOLDS_MAX_POSITIONS_PER_USER=5")
	id, asked := uuid.NewString(), 0
	contract := make(map[string]made)
	for _, o := range newMaker(t, nil).operations {
		contract[o.OperationID] = o
	}
	for _, o := range operations(t) {
		if len(o.Roles) == 0 || isForPersons(o) {
			continue // for machines, which may add names of their own; or no key gets so far
		}
		asked++
		credential := s.Operator
		if !strings.Contains(strings.Join(o.Roles, " "), "operator") {
			credential = s.App
		}
		values := map[string]string{"layer": "1", "column": "1", "user": "mina", "sweep": "lost-jobs", "kind": "purchases", "month": "2020-01", "prefix": "0123456789ab"}
		pathWith := func(replaced, by string) (path string) {
			path = o.Path
			for _, p := range contract[o.ID].parameters {
				value := id
				if known := values[p.Value.Name]; known != "" {
					value = known
				}
				if p.Value.Name == replaced {
					value = by
				}
				path = strings.Replace(path, "{"+p.Value.Name+"}", value, 1)
			}
			return path
		}
		path := pathWith("", "")
		refuses := func(what string, a fleet.Answer, status int, code string, says ...string) {
			t.Helper()
			refused(t, o.ID+" "+what, a, status, code)
			for _, text := range says {
				wantAnswer(t, fmt.Sprintf("%s, %s: it does not say %q", o.ID, what, text), a, text)
			}
		}
		do := func(path string, header map[string]string) fleet.Answer {
			return s.Do(0, credential, o.Method, path, header, nil)
		}
		for header, value := range map[string]string{"X-Idempotency-Key": id, "Idempotency_Key": id, "If_Match": `"7"`, "X-Last-Event-ID": id} {
			refuses(header, do(path, map[string]string{header: value}), 400, "invalid-request", `"pointer":"`+http.CanonicalHeaderKey(header)+`"`)
		}
		refuses("an unknown parameter", do(path+"?unheard-of=1", nil), 400, "invalid-request", `"pointer":"?unheard-of"`)
		if o.Method == http.MethodGet {
			refuses("a parameter twice", do(path+"?campaign_id="+id+"&campaign_id="+id, nil), 400, "invalid-request", `"pointer":"?campaign_id"`)
		}
		for _, p := range contract[o.ID].parameters {
			for _, text := range []string{"%00", "a%00b", "%ff", "a%ed%a0%80", "%c0%80"} { // Postgres refuses these
				switch p.Value.In {
				case "path":
					refuses(p.Value.Name+" "+text, do(pathWith(p.Value.Name, text), nil), 404, "not-found")
				case "query":
					refuses(p.Value.Name+" "+text, do(path+"?"+p.Value.Name+"="+text, nil), 400, "invalid-request")
				default:
					if a := do(path, map[string]string{p.Value.Name: "\xff\"\xc0\x80\""}); a.Status >= 500 {
						t.Errorf("%s, an odd %s: %v %s", o.ID, p.Value.Name, a, a.Body)
					}
				}
			}
			switch {
			case p.Value.In == "path" && p.Value.Name != "user":
				refuses("an odd "+p.Value.Name, do(pathWith(p.Value.Name, "1%20OR%201=1"), nil), 404, "not-found")
			case p.Value.In == "query" && nonsense(p.Value.Schema.Value) != "":
				refuses("an odd "+p.Value.Name, do(path+"?"+p.Value.Name+"="+nonsense(p.Value.Schema.Value), map[string]string{"Idempotency-Key": id}), 400, "invalid-request", `"pointer":"?`+p.Value.Name+`"`)
			}
			if p.Value.In == "query" && p.Value.Required {
				refuses("no "+p.Value.Name, do(path, nil), 400, "invalid-request", `"?`+p.Value.Name+`","detail":"is required"`)
			}
		}
		if o.Method == http.MethodGet {
			continue
		}
		send := func(body, key, media string) fleet.Answer {
			return rawAs(s, credential, o.Method, path, body, key, media)
		}
		if o.NeedsKey {
			refuses("no key", send("{}", "-", ""), 400, "idempotency-key-missing", "Idempotency-Key")
			refuses("a long key", send("{}", strings.Repeat("k", 256), ""), 400, "idempotency-key-invalid")
			refuses("a key not in ASCII", send("{}", "schlüssel", ""), 400, "idempotency-key-invalid")
		}
		limit := o.MaxBody
		switch {
		case !o.HasBody:
			limit = 1 << 10
		case o.ID == "requestPurchase":
			limit = 16<<10 + 64*10
		case o.ID == "createHold":
			limit = 16<<10 + 64*5
		}
		refuses("a body as long as may be", send("x"+strings.Repeat(" ", limit-1), "", ""), 400, "invalid-request")
		refuses("a longer one", send("x"+strings.Repeat(" ", limit), "", ""), 413, "body-too-large")
		for _, body := range []string{"{", "[]", "[1]", `{"unheard_of":1}{}`, "null", `"{}"`} {
			refuses(body, send(body, "", ""), 400, "invalid-request")
		}
		if !o.HasBody {
			refuses("a field", send(`{"unheard_of":1}`, "", ""), 400, "invalid-request", "this operation has no body")
			continue
		}
		for name := range contract[o.ID].RequestBody.Value.Content["application/json"].Schema.Value.Properties {
			for _, text := range []string{`\u0000`, "\xff", `\ud800`, "\xed\xa0\x80", "\x00"} {
				refuses(fmt.Sprintf("%q in %s", text, name), send(`{"`+name+`":"a`+text+`"}`, "", ""), 400, "invalid-request")
			}
		}
		refuses("an unknown field", send(`{"unheard_of":1}`, "", ""), 400, "invalid-request", "unheard_of")
		refuses("another media type", send("{}", "", "text/plain"), 415, "unsupported-media-type")
		if required := contract[o.ID].RequestBody.Value.Content["application/json"].Schema.Value.Required; !o.BodyOptional && len(required) > 0 {
			says := []string{"the body is empty"}
			for _, field := range required {
				says = append(says, fmt.Sprintf(`{"pointer":"/%s","detail":"is required"}`, field))
			}
			refuses("no body", send("", "", ""), 400, "invalid-request", says...)
		}
	}
	if asked < 50 {
		t.Errorf("only %d operations", asked)
	}
	wantEqual(t, "jobs of bad requests", count(s, `SELECT count(*) FROM jobs WHERE client = ANY($1)`, []string{s.Client("shop"), s.Client("ops")}), 0)
}

// What browsers, proxies and libraries add by themselves is not ours to judge.
func TestHeadersOfOthersAreNoneOfOurs(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	header := map[string]string{"Idempotency-Key": uuid.NewString(), "Last-Event-ID": "1", "Prefer": "wait=1"} // on a GET they change nothing
	for name := range strings.FieldsSeq(`Accept Accept-Charset Accept-Encoding Accept-Language Alt-Used Baggage Cache-Control CDN-Loop CF-Connecting-IP CF-IPCountry
		CF-Ray Cookie Date DNT Early-Data Expect-CT Fastly-Client-IP Forwarded From If-Modified-Since If-Range If-Unmodified-Since Keep-Alive Max-Forwards Origin
		Pragma Preference-Applied Priority Proxy-Authorization Range Referer Request-Id Save-Data Sec-Fetch-Mode Sentry-Trace Server-Timing Signature Signature-Input Tracestate
		True-Client-IP User-Agent Via Warning X-Amzn-Trace-Id X-Api-Key X-B3-TraceId X-Client-IP X-Correlation-ID X-CSRF-Token X-Event-ID X-Forwarded-For X-Forwarded-Host
		X-Forwarded-Proto X-Http-Method X-Real-IP X-Request-ID X-Request-Start X-Requested-With X-Scheme X-Trace-Id X-Version`) {
		header[name] = "1"
	}
	delete(header, "Accept-Encoding")
	delete(header, "Keep-Alive")
	wantAnswer(t, "", s.Do(0, s.App, http.MethodGet, "/v1/jobs", header, nil), 200)
}
