package stripe_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"
)

// wire stands in for the network and the server: it answers at once what a function
// says, and notes when.
type wire struct {
	say  func(n int, r *http.Request) (answer, error) // n counts from 1
	mu   sync.Mutex
	at   []time.Time
	path []string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.at, w.path = append(w.at, time.Now()), append(w.path, r.URL.Path)
	n := len(w.at)
	w.mu.Unlock()
	a, err := w.say(n, r)
	if err == nil || a.status > 0 { // with a status and an error: sent, and no answer
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	}
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range a.header {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: a.status, Header: header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func (w *wire) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.at)
}

// busiest returns the most requests that began in any second; of a path, if one is given.
func (w *wire) busiest(path string) (most int) {
	for i, from := range w.at {
		n := 0
		for j, at := range w.at {
			if (path == "" || w.path[j] == path) && (path == "" || w.path[i] == path) && !at.Before(from) && at.Before(from.Add(time.Second)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
