package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi"
	"triprize/internal/testkit/fleet"
)

// A name that changed nothing would be taken for one that did.
func TestNoOperationIgnoresANameThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	contract, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	id, asked := uuid.NewString(), 0
	for i := range contract.Operations {
		o := &contract.Operations[i]
		if len(o.Roles) == 0 {
			continue // for machines, which may add names of their own
		}
		asked++
		path := strings.NewReplacer("{campaign}", id, "{layer}", "1", "{column}", "1", "{user}", "mina", "{sweep}", "lost-jobs").Replace(o.Path)
		for strings.Contains(path, "{") {
			path = path[:strings.Index(path, "{")] + id + path[strings.Index(path, "}")+1:]
		}
		for header, value := range map[string]string{"X-Idempotency-Key": id, "Idempotency_Key": id, "If_Match": `"7"`, "X-Last-Event-ID": id} {
			refuses(t, s, o.Method, path, map[string]string{header: value, "Accept": "text/csv"}, `"pointer":"`+http.CanonicalHeaderKey(header)+`"`)
		}
		refuses(t, s, o.Method, path+"?unheard-of=1", nil, `"pointer":"?unheard-of"`)
		if o.Method == http.MethodGet {
			refuses(t, s, http.MethodGet, path+"?campaign_id="+id+"&campaign_id="+id, nil, `"pointer":"?campaign_id"`)
		}
	}
	if asked < 50 {
		t.Errorf("only %d operations", asked)
	}
	for path, says := range map[string]string{
		"/v1/jobs?status=failed":                        "is not a parameter of this operation (it takes state, kind, campaign_id, user_id, code, idempotency_key, reference, include, cursor, limit)",
		"/v1/users/mina/purchases?campaign=" + id:       "it takes campaign_id",
		"/v1/users/mina/purchases?userId=1":             "is not a parameter of this operation (it takes campaign_id, include, cursor, limit)",
		"/v1/campaigns?Limit=2":                         "is not a parameter",
		"/v1/sweeps?state=1":                            "which takes none",
		"/v1/jobs?" + strings.Repeat("n", 500) + "=1":   "name that is too long",
		"/v1/purchases?referenc=order-1&reference=o":    "is not a parameter",
		"/v1/jobs?x=1&y=1" + strings.Repeat("&z=1", 99): `"pointer":"?y"`,
	} {
		refuses(t, s, http.MethodGet, path, nil, says)
	}
	refuses(t, s, http.MethodPatch, "/v1/campaigns/"+id, map[string]string{"If-Match": `"7"`}, "does not check the version")
}

// refuses sends a request with a name that there is not.
func refuses(t *testing.T, s *fleet.System, method, path string, header map[string]string, says string) {
	t.Helper()
	a := s.Do(0, s.Operator, method, path, header, nil)
	if a.Status != http.StatusBadRequest && a.Status != http.StatusForbidden || a.Status == http.StatusBadRequest && (a.Refusal() != "invalid-request" || !strings.Contains(string(a.Body), says)) {
		t.Errorf("%s %s %v: %v %s, want %s", method, path, header, a, a.Body, says)
	}
	if a.Status == http.StatusForbidden { // not for operators
		if a = s.Do(0, s.App, method, path, header, nil); a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), says) {
			t.Errorf("%s %s %v by an app: %v %s, want %s", method, path, header, a, a.Body, says)
		}
	}
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
	if a := s.Do(0, s.App, http.MethodGet, "/v1/jobs", header, nil); a.Status != http.StatusOK {
		t.Errorf("%v %s", a, a.Body)
	}
}

func TestAUsersPurchasesAreFoundByCampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	one, two := s.Campaign(3), s.Campaign(3)
	first := buyAs(s, s.App, one, s.User("mina"), "external", "a").Result.PurchaseID
	second := buyAs(s, s.App, two, s.User("mina"), "external", "b").Result.PurchaseID
	third := buyAs(s, s.App, one, s.User("mina"), "external", "c").Result.PurchaseID
	path := "/v1/users/" + s.User("mina") + "/purchases"
	want(s, s.App, path, third, second, first)
	want(s, s.App, path+"?campaign_id="+one.String(), third, first)
	want(s, s.App, path+"?campaign_id="+uuid.NewString())
}

func TestAnybodyReadsWhatThePositionsAreCalled(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := fleet.RawJSON(`{"name":"Hall","currency":"JPY","layers":[{"layer":1,"positions":12,"label":"Row A","price":1200,"prizes":[]},{"layer":2,"positions":3,"price":800,"prizes":[]}]}`)
	id := view(s, s.Post("/v1/campaigns", body), http.StatusCreated).ID.String()
	path := "/v1/campaigns/" + id + "/draw/labels"
	if a := s.Do(0, s.Operator, http.MethodGet, path, nil, nil); a.Status != http.StatusNotFound { // they may change
		t.Errorf("of a draft: %v", a)
	}
	if a := s.Post("/v1/campaigns/"+id+"/publish", nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	a := s.Do(0, "", http.MethodGet, path, nil, nil)
	expected := `{"campaign_id":"` + id + `","layers":[{"layer":1,"positions":12,"first_number":1,"label":"Row A"},{"layer":2,"positions":3,"first_number":13,"label":null}]}`
	if a.Status != http.StatusOK || strings.TrimSpace(string(a.Body)) != expected || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
		t.Errorf("%v %v %s", a, a.Header, a.Body)
	}
	if again := s.Do(0, "", http.MethodGet, path, map[string]string{"If-None-Match": a.Header.Get("ETag")}, nil); again.Status != http.StatusNotModified {
		t.Errorf("known already: %v", again)
	}
}
