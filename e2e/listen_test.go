package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// frame is what a stream sends up to an empty line: an event, a heartbeat or a hint.
type frame struct{ id, name, data, comment, retry string }

// listener reads one event stream.
type listener struct {
	answer // its status and header; the body of one that is no stream
	t      *testing.T
	frames chan frame // closed at the end
	err    error      // how it ended, once frames is closed; nil: between two frames, as HTTP wants it
	hangUp func()
}

var streamClient = &http.Client{Transport: contractOf} // a stream has no time limit

// listen opens a stream of the n-th api. It is hung up at the end of the test.
func (s *system) listen(n int, key, path, lastEventID string) *listener {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.urls[n]+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if lastEventID != "" {
		request.Header.Set("Last-Event-ID", lastEventID)
	}
	response, err := streamClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	l := &listener{t: s.t, answer: answer{status: response.StatusCode, header: response.Header}, frames: make(chan frame, 1000), hangUp: cancel}
	if response.StatusCode == http.StatusOK {
		go l.read(response.Body)
		return l
	}
	defer func() { _ = response.Body.Close() }()
	if l.body, err = io.ReadAll(response.Body); err != nil {
		s.t.Fatal(err)
	}
	_ = json.Unmarshal(l.body, &l.answer) // of a problem
	return l
}

func (l *listener) read(body io.ReadCloser) {
	defer close(l.frames)
	defer func() { _ = body.Close() }()
	lines := bufio.NewScanner(body)
	var f frame
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			f.id = value
		case "event":
			f.name = value
		case "data":
			f.data += value
		case "retry":
			f.retry = value
		case "":
			if value != "" {
				f.comment = value
				continue
			}
			l.frames <- f
			f = frame{}
		}
	}
	if l.err = lines.Err(); l.err == nil && f != (frame{}) {
		l.err = io.ErrUnexpectedEOF // in the middle of an event
	}
}

// next returns the next frame; false when the stream has ended.
func (l *listener) next() (frame, bool) {
	l.t.Helper()
	if l.status != http.StatusOK {
		l.t.Fatalf("no stream: %v %s", l.answer, l.body)
	}
	select {
	case f, more := <-l.frames:
		return f, more
	case <-time.After(30 * time.Second):
		l.t.Fatal("the stream says nothing")
		return frame{}, false
	}
}

// event returns the next event, past heartbeats and hints.
func (l *listener) event() (frame, bool) {
	l.t.Helper()
	for {
		if f, more := l.next(); !more || f.data != "" {
			return f, more
		}
	}
}

// wantEvent returns the next event and fails the test when there is none.
func (l *listener) wantEvent() frame {
	l.t.Helper()
	f, more := l.event()
	if !more {
		l.t.Fatalf("the stream has ended: %v", l.err)
	}
	return f
}

// wantEnd wants the stream to end, without another event and between two of them.
func (l *listener) wantEnd() {
	l.t.Helper()
	if f, more := l.event(); more {
		l.t.Errorf("one more event: %+v", f)
	} else if l.err != nil {
		l.t.Errorf("the stream was cut: %v", l.err)
	}
}

// wantSilence wants n heartbeats, and no event, before anything else.
func (l *listener) wantSilence(n int) {
	l.t.Helper()
	for n > 0 {
		f, more := l.next()
		if !more || f.data != "" {
			l.t.Fatalf("an event where silence was expected: %+v (more: %t)", f, more)
		}
		if f.comment != "" {
			n--
		}
	}
}

// metric returns the value of a series of the n-th api; -1 when it is not there.
func (s *system) metric(n int, series string) float64 {
	s.t.Helper()
	a := s.do(n, "", http.MethodGet, "/metrics", nil, nil)
	for line := range strings.Lines(string(a.body)) {
		if text, found := strings.CutPrefix(line, series+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return value
		}
	}
	return -1
}

// awaitMetric waits until a series of the n-th api has a value.
func (s *system) awaitMetric(n int, series string, want float64) {
	s.t.Helper()
	eventually(s.t, time.Minute, fmt.Sprint(series, " ", want), func() bool { return s.metric(n, series) == want })
}

// log returns what a process has written.
func (s *system) log(name string) []byte {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.LogDir, name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}
