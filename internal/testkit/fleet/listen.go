package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/servers"

	"github.com/google/uuid"
)

// Frame is what a stream sends up to an empty line: an event, a heartbeat or a hint.
type Frame struct{ ID, Name, Data, Comment, Retry string }

// Listener reads one event stream.
type Listener struct {
	Answer // its status and header; the body of one that is no stream
	t      *testing.T
	frames chan Frame // closed at the end
	reason string     // why the stream has ended, as its last event says; empty: it has not
	Err    error      // how it ended, once frames is closed; nil: between two frames, as HTTP wants it
	HangUp func()
}

// StreamClient reads event streams.
var StreamClient = &http.Client{Transport: contractOf} // a stream has no time limit

// Listen opens a stream of the n-th api. It is hung up at the end of the test.
func (s *System) Listen(n int, key, path, lastEventID string) *Listener {
	s.T.Helper()
	header := make(map[string]string)
	if lastEventID != "" {
		header["Last-Event-ID"] = lastEventID
	}
	request, err := s.request(n, key, http.MethodGet, path, header, nil)
	servers.NoError(s.T, err)
	ctx, cancel := context.WithCancel(request.Context())
	s.T.Cleanup(cancel)
	response, err := StreamClient.Do(request.WithContext(ctx))
	servers.NoError(s.T, err)
	l := &Listener{t: s.T, Answer: Answer{Status: response.StatusCode, Header: response.Header}, frames: make(chan Frame, 1000), HangUp: cancel}
	if response.StatusCode == http.StatusOK {
		go l.read(response.Body)
		return l
	}
	defer func() { _ = response.Body.Close() }()
	l.Body, err = io.ReadAll(response.Body)
	servers.NoError(s.T, err)
	_ = json.Unmarshal(l.Body, &l.Answer) // of a problem
	return l
}

func (l *Listener) read(body io.ReadCloser) {
	defer close(l.frames)
	defer func() { _ = body.Close() }()
	lines := bufio.NewScanner(body)
	var f Frame
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			f.ID = value
		case "event":
			f.Name = value
		case "data":
			f.Data += value
		case "retry":
			f.Retry = value
		case "":
			if value != "" {
				f.Comment = value
				continue
			}
			l.frames <- f
			f = Frame{}
		}
	}
	if l.Err = lines.Err(); l.Err == nil && f != (Frame{}) {
		l.Err = io.ErrUnexpectedEOF // in the middle of an event
	}
}

// Next returns the next frame; false when the stream has ended.
func (l *Listener) Next() (Frame, bool) {
	l.t.Helper()
	if l.Status != http.StatusOK {
		l.t.Fatalf("no stream: %v %s", l.Answer, l.Body)
	}
	select {
	case f, more := <-l.frames:
		return f, more
	case <-time.After(servers.Patience):
		l.t.Fatal("the stream says nothing")
		return Frame{}, false
	}
}

// Event returns the next event, past heartbeats and hints. That of the end is not one of
// them; a stream without it was cut.
func (l *Listener) Event() (Frame, bool) {
	l.t.Helper()
	for {
		f, more := l.Next()
		switch {
		case f.Name == "end":
			var end struct{ Reason string }
			if err := json.Unmarshal([]byte(f.Data), &end); err != nil || end.Reason == "" || f.ID != "" {
				l.t.Fatalf("the end is %+v", f)
			}
			l.reason = end.Reason
		case !more || f.Data != "":
			return f, more
		}
	}
}

// Reason is why the stream has ended, once there are no more events.
func (l *Listener) Reason() string { return l.reason }

// WantEvent returns the next event and fails the test when there is none.
func (l *Listener) WantEvent() Frame {
	l.t.Helper()
	f, more := l.Event()
	if !more {
		l.t.Fatalf("the stream has ended: %v", l.Err)
	}
	return f
}

// WantEnd wants the stream to end, without another event and between two of them.
func (l *Listener) WantEnd() {
	l.t.Helper()
	if f, more := l.Event(); more {
		l.t.Errorf("one more event: %+v", f)
	} else if l.Err != nil || l.reason == "" {
		l.t.Errorf("the stream was cut: %v", l.Err)
	}
}

// WantSilence wants n heartbeats, and no event, before anything else.
func (l *Listener) WantSilence(n int) {
	l.t.Helper()
	for n > 0 {
		f, more := l.Next()
		if !more || f.Data != "" {
			l.t.Fatalf("an event where silence was expected: %+v (more: %t)", f, more)
		}
		if f.Comment != "" {
			n--
		}
	}
}

// MetricsURL returns where the n-th api shows its metrics.
func (s *System) MetricsURL(n int) string {
	at := s.URLs[n%len(s.URLs)]
	return cmp.Or(s.metrics[at], at+"/metrics")
}

// Metrics returns what the n-th api shows to a scraper; or another process, whose address a test has added to the URLs.
func (s *System) Metrics(n int) string {
	s.T.Helper()
	request, err := http.NewRequest(http.MethodGet, s.MetricsURL(n), nil)
	servers.NoError(s.T, err)
	return string(Send(request).Body)
}

// Metric returns the value of a series of the n-th api; -1 when it is not there.
func (s *System) Metric(n int, series string) float64 {
	s.T.Helper()
	for line := range strings.Lines(s.Metrics(n)) {
		if text, found := strings.CutPrefix(line, series+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			servers.NoError(s.T, err)
			return value
		}
	}
	return -1
}

// AwaitMetric waits until a series of the n-th api has a value.
func (s *System) AwaitMetric(n int, series string, want float64) {
	s.T.Helper()
	servers.Eventually(s.T, fmt.Sprint(series, " ", want), func() bool { return s.Metric(n, series) == want })
}

// Lively streams say soon that they are silent.
const Lively = "TRIPRIZE_STREAMS_HEARTBEAT=100ms"

// JobEvents is the path of a job's event stream.
func JobEvents(id uuid.UUID) string { return "/v1/jobs/" + id.String() + "/events" }

// CampaignEvents is the path of a campaign's event stream.
func CampaignEvents(id uuid.UUID) string { return "/v1/campaigns/" + id.String() + "/events" }
