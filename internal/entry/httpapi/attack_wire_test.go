package httpapi_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// dial opens a connection to the first api.
func dial(s *fleet.System) net.Conn {
	s.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URLs[0], "http://"))
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(servers.Patience))
	}
	servers.NoError(s.T, err)
	s.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// wire sends bytes as they are, nothing after them, and returns the answers.
func wire(s *fleet.System, what, text string) (answers []fleet.Answer) {
	s.T.Helper()
	conn := dial(s)
	_, _ = io.WriteString(conn, text) // it may be refused before its end
	_ = conn.(*net.TCPConn).CloseWrite()
	reader := bufio.NewReader(conn)
	method, _, _ := strings.Cut(text, " ")
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.T.Fatalf("%s: neither an answer nor the end, after %d answers", what, len(answers))
		case err != nil:
			return answers
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusContinue {
			continue
		}
		a := fleet.Answer{Status: response.StatusCode, Header: response.Header, Body: body}
		if response.Close {
			a.Header.Set("Connection", "close")
		}
		_ = json.Unmarshal(body, &a) // what does not fit stays empty
		answers = append(answers, a)
	}
}

// Where a request ends must not be a matter of opinion: a proxy before us may
// have another one, and then the rest of one client's request is the beginning of
// the next client's.
func TestARequestThatCouldEndElsewhereIsRefusedAndTheConnectionClosed(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	inner := "GET /healthz HTTP/1.1\r\nHost: api\r\n\r\n"
	head := "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer " + s.Operator + "\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
	chunked := "2\r\n{}\r\n0\r\n\r\n" + inner
	for name, rest := range map[string]string{ // package httpconn has all of the grammar
		"a length and chunks": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, "the same length twice": "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + inner, "chunks": "Transfer-Encoding: chunked\r\n\r\n" + chunked,
		"a blank before the colon": "Content-Length : 2\r\n\r\n{}" + inner, "folded": "X-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}" + inner, "bare LF": "X-A: b\nContent-Length: 2\r\n\r\n{}" + inner, "another host": "Host: other\r\nContent-Length: 2\r\n\r\n{}" + inner,
	} {
		answers := wire(s, name, head+rest)
		if len(answers) != 1 || answers[0].Status < 400 || answers[0].Status >= 500 || answers[0].Header.Get("Connection") != "close" {
			t.Errorf("%s: %v", name, answers)
		}
		for _, a := range answers {
			if harmless(t, name, a); fleet.Contains(a.Body, s.Operator) || fleet.Contains(a.Body, s.Operator[16:]) {
				t.Errorf("%s: the answer repeats the key: %s", name, a.Body)
			}
		}
	}
	for name, text := range map[string]string{
		"no host": "GET /healthz HTTP/1.1\r\n\r\n", "no version": "GET /healthz\r\n\r\n" + inner, "no version, bare LF": "GET /healthz\n\n" + inner, "a bare LF": "GET /healthz HTTP/1.1\nHost: api\r\n\r\n" + inner, "a blank in the target": "GET /healthz x HTTP/1.1\r\nHost: api\r\n\r\n" + inner, "a tab": "GET\t/healthz\tHTTP/1.1\r\nHost: api\r\n\r\n" + inner, "another version": "GET /healthz HTTP/9.9\r\nHost: api\r\n\r\n" + inner, "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "TLS": strings.Repeat("\x16\x03\x01\x02\x00", 100) + "\r\n\r\n",
		"no path": "GET  HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer " + s.Operator + "\r\n\r\n",
	} {
		if answers := wire(s, name, text); len(answers) != 1 || answers[0].Status != http.StatusBadRequest || fleet.Contains(answers[0].Body, s.Operator) {
			t.Errorf("%s: %v", name, answers)
		}
	}
}

func TestAClientThatNeverReadsIsLetGo(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_API_WRITE_TIMEOUT=500ms")
	// One that asks and never reads is let go when writing to it takes too long;
	// nobody else has to wait for it.
	conn := dial(s)
	ask := strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: api\r\n\r\n", 100)
	gone := make(chan error, 1)
	go func() {
		for {
			if _, err := io.WriteString(conn, ask); err != nil {
				gone <- err
				return
			}
		}
	}()
	for waiting := true; waiting; {
		select {
		case err := <-gone:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("never reads: the connection is still open after %s", servers.Patience)
			}
			waiting = false
		default:
			wantAnswer(t, "another client", s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns", nil, nil), 200)
		}
	}
}

// differs is what differs from answer to answer.
var differs = regexp.MustCompile(`retry: [0-9]+|"request_id":"[^"]+"`)

// A client of HTTP/1.0 knows no chunks: it would take their sizes for text. A next request on
// the connection shows where an answer ends.
func TestTheFramingOfAnAnswerFitsTheVersionOfItsRequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(80) // so many positions are a long document
	bought := s.Buy(fleet.Order{Campaign: id, User: "a"})
	mustAnswer(t, "", s.AwaitJob(0, bought.ID), 200)
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
		"an export":           {"/v1/exports/purchases?from=2026-11-01&to=2090-01-01", "", 200, true},
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
			wantEqual(t, fmt.Sprintf("%s, %s: whether the body %q has to be", method, what, body), method == http.MethodGet && c.status != 304 && c.status != 204, body != "")
		}
	}
}
