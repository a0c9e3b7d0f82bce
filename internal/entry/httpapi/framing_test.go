package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

// differs is what differs from answer to answer.
var differs = regexp.MustCompile(`retry: [0-9]+|"request_id":"[^"]+"`)

// A client of HTTP/1.0 knows no chunks: it would take their sizes for text. A next request on
// the connection shows where an answer ends.
func TestTheFramingOfAnAnswerFitsTheVersionOfItsRequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(80) // so many positions are a long document
	bought := s.Buy(fleet.Order{Campaign: id, User: "a"})
	if a := s.AwaitJob(0, bought.ID); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	contract := s.Do(0, "", http.MethodGet, "/openapi.json", nil, nil)
	campaign := "/v1/campaigns/" + id.String()
	for what, c := range map[string]struct {
		path, header string
		status       int
		ends         bool // with its connection, for HTTP/1.0
	}{
		"a document":          {campaign, "", 200, false},
		"a long document":     {campaign + "/positions", "", 200, false},
		"a file":              {"/openapi.json", "", 200, false},
		"a file as before":    {"/openapi.json", "If-None-Match: " + contract.Header.Get("ETag") + "\r\n", 304, false},
		"an export":           {campaign + "/purchases", "Accept: text/csv\r\n", 200, true},
		"a stream":            {fleet.JobEvents(bought.ID), "", 200, true},
		"a stream at its end": {fleet.JobEvents(bought.ID), "Last-Event-ID: succeeded\r\n", 204, false},
		"a problem":           {"/v1/nothing", "", 404, false},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			body := ""
			for _, version := range []string{"1.1", "1.1\r\nConnection: TE, close", "1.0", "1.0\r\nConnection: Keep-Alive"} {
				conn := dial(s)
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/%s\r\nHost: api\r\nAuthorization: Bearer %s\r\n%s\r\nGET /healthz HTTP/1.0\r\n\r\n", method, c.path, version, s.App, c.header)
				reader := bufio.NewReader(conn)
				answer, err := http.ReadResponse(reader, &http.Request{Method: method})
				if err != nil {
					t.Fatal(what, err)
				}
				sent, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				isOld := strings.HasPrefix(version, "1.0")
				if err != nil || answer.StatusCode != c.status || isOld && len(answer.TransferEncoding) > 0 {
					t.Errorf("%s, %s with %q: %d, %v, %v", method, what, version, answer.StatusCode, answer.TransferEncoding, err)
				}
				isLast := version != "1.1" && (!strings.Contains(version, "Keep-Alive") || c.ends)
				if _, err := http.ReadResponse(reader, nil); isLast != (err != nil) || isLast != answer.Close { //nolint:bodyclose // it is in memory
					t.Errorf("%s, %s with %q: what follows is %v, closes: %t", method, what, version, err, answer.Close)
				}
				text := differs.ReplaceAllString(string(sent), "")
				if body == "" {
					body = text
				}
				if text != body {
					t.Errorf("%s, %s with %q has %d bytes, want %d", method, what, version, len(text), len(body))
				}
				_ = conn.Close()
			}
			if hasBody := method == http.MethodGet && c.status != 304 && c.status != 204; hasBody != (body != "") {
				t.Errorf("%s, %s: the body is %q", method, what, body)
			}
		}
	}
}
