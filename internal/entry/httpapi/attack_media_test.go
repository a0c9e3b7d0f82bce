package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

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
