//go:build go1.25

package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"triprize.example/client"
)

// simulator is a server that keeps its promises: a key makes one job. What goes
// wrong on the way, a test says. It runs in a bubble of synctest, over pipes, so
// that its hours take no time.
type simulator struct {
	t     *testing.T
	dials chan net.Conn

	// answer takes the place of the server for the n-th request, from 1, if it returns true.
	answer func(n int, w http.ResponseWriter, r *http.Request) bool
	// lose lets the server do its work, and hangs up instead of answering.
	lose func(n int) bool
	// refuse lets dialing fail.
	refuse func(n int) bool

	mu       sync.Mutex
	requests []request
	jobs     map[string]client.Job // by key
	dialed   int
}

// request is what the simulator has received.
type request struct {
	at     time.Time
	method string
	path   string
	header http.Header
	body   string
}

// text says what was asked for, with the headers that change it.
func (r request) text() string {
	line := r.method + " " + r.path
	for _, name := range []string{"Prefer", "If-Match", "Accept"} {
		if value := r.header.Get(name); value != "" && !strings.HasPrefix(value, "application/json") {
			line += " " + name + ": " + value
		}
	}
	return named.Replace(line)
}

var named = strings.NewReplacer(campaign.String(), "CAMPAIGN", jobID.String(), "JOB")

var errRefused = &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}

// simulate runs a test against a simulator, on a clock of their own.
func simulate(t *testing.T, test func(t *testing.T, s *simulator)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulator{t: t, dials: make(chan net.Conn), jobs: make(map[string]client.Job)}
		server := &http.Server{Handler: s}
		go func() { _ = server.Serve(s) }()
		t.Cleanup(func() { _ = server.Close() })
		test(t, s)
	})
}

// Accept, Close and Addr make the simulator a net.Listener.
func (s *simulator) Accept() (net.Conn, error) {
	conn, open := <-s.dials
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (s *simulator) Close() error   { close(s.dials); return nil }
func (s *simulator) Addr() net.Addr { return &net.UnixAddr{Name: "simulator"} }

func (s *simulator) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	s.dialed++
	n := s.dialed
	s.mu.Unlock()
	if s.refuse != nil && s.refuse(n) {
		return nil, errRefused
	}
	here, there := net.Pipe()
	s.dials <- there
	return here, nil
}

func (s *simulator) client(options ...client.Option) *client.Client {
	s.t.Helper()
	transport := &http.Transport{DialContext: s.dial}
	s.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New("http://simulator/", "tp_key", append([]client.Option{client.WithHTTPClient(&http.Client{Transport: transport, Timeout: time.Second})}, options...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// seen returns the requests so far.
func (s *simulator) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

func (s *simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, request{time.Now(), r.Method, r.URL.RequestURI(), r.Header, string(body)})
	n := len(s.requests)
	s.mu.Unlock()
	switch {
	case s.answer != nil && s.answer(n, w, r):
	case s.lose != nil && s.lose(n):
		s.serve(discard{}, r)
		panic(http.ErrAbortHandler)
	default:
		s.serve(w, r)
	}
}

// serve is the server of the promises: every purchase succeeds.
func (s *simulator) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/purchases") {
		say(w, http.StatusOK, client.Campaign{Name: "Summer"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	made, ok := s.jobs[key]
	if !ok {
		made = job(uuid.New(), client.JobStateSucceeded)
		s.jobs[key] = made
	}
	say(w, http.StatusOK, made)
}

type discard struct{}

func (discard) Header() http.Header            { return make(http.Header) }
func (discard) Write(data []byte) (int, error) { return len(data), nil }
func (discard) WriteHeader(int)                {}

// hold keeps a request waiting, as long as its client does.
func hold(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}
