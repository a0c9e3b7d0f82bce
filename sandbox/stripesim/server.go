// Package stripesim is a simulator of Stripe: an HTTP server that a client of Stripe talks
// to without knowing. It keeps payment intents, charges, refunds, disputes and events,
// obeys idempotency keys, and sends signed webhooks. No money moves. It is for
// development and tests, and never for production.
//
// The payment method ([Methods]) chooses the course of a payment: Stripe's own test
// names, such as pm_card_visa, and names of its own for faults, such as
// pm_sandbox_timeout_after_charge. Faults for all requests, the clock, and the ends of slow
// payments are controlled under /sandbox, with the same key.
//
// The states of a payment intent:
//
//	            ┌── declined, not authenticated ──┐
//	            ▼                                 │
//	requires_payment_method ─┐                    │
//	                         ├─ confirm ─▶ requires_action ─▶ requires_capture ─ capture ─▶ succeeded
//	requires_confirmation ───┘      │                    └──────────────────────────────────▲
//	                                └────▶ processing (it cannot be cancelled) ─────────────┘
//
// Every state before succeeded can be cancelled, but for processing.
//
// Changes are in the journal on disk before they are answered, with the answer of their
// idempotency key. So a sandbox that was killed goes on where it was. Without a folder
// it keeps everything in memory.
//
// One lock guards all state. Nothing is sent, and nobody waits, while it is held.
package stripesim

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a sandbox. It is an http.Handler for the API of Stripe, the page where a
// buyer authenticates, and the controls.
type Server struct {
	settings Settings
	journal  *journal
	outbound *outbound
	faults   *chance
	limits   *limits
	mux      *http.ServeMux
	slots    chan struct{} // of requests under way

	ahead atomic.Int64 // nanoseconds by which the clock was moved forward

	mu     sync.Mutex
	state  *state
	inUse  map[string]bool // idempotency keys of calls that are not yet answered
	counts counts

	wakeup chan struct{} // the clock was moved, or an alarm was set
	stop   context.CancelFunc
	closed context.Context //nolint:containedctx // ends with the server, whose goroutines and hanging requests wait for it
	owned  sync.WaitGroup
}

// counts are what has been since the start of the process.
type counts struct {
	requests, limited, injected, delivered, undelivered int64
	endpoints                                           map[string]int64
}

// New reads the journal and starts a sandbox. The caller closes it.
func New(settings Settings) (*Server, error) {
	if err := settings.check(); err != nil {
		return nil, err
	}
	s := &Server{
		settings: settings, outbound: newOutbound(), faults: newChance(), limits: newLimits(settings.Rate, settings.EndpointRate),
		state: newState(), inUse: make(map[string]bool), counts: counts{endpoints: make(map[string]int64)}, wakeup: make(chan struct{}, 1),
		slots: make(chan struct{}, mostAtOnce),
	}
	var err error
	if s.journal, err = openJournal(settings.Dir, s.state); err != nil {
		return nil, err
	}
	s.ahead.Store(int64(s.state.ahead))
	s.state.prune(s.now().Unix())
	if err := s.journal.begin(s.state.records()); err != nil {
		return nil, err
	}
	s.resume()
	s.closed, s.stop = context.WithCancel(context.Background())
	s.mux = s.routes()
	s.owned.Go(func() { s.deliver(s.closed) })
	s.owned.Go(func() { s.watch(s.closed) })
	return s, nil
}

// Close ends what is under way, waits for it, and closes the journal. Requests must have
// ended before, but for those that are never answered.
func (s *Server) Close() error {
	s.stop()
	s.owned.Wait()
	return s.journal.close()
}

// Release lets requests that are never answered end at once, for a graceful stop of
// the server of the sandbox. Nothing that comes later waits.
func (s *Server) Release() { s.stop() }

// mostAtOnce bounds the requests that are under way, with those that are never answered.
const mostAtOnce = 1024

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		s.mux.ServeHTTP(w, r)
	default:
		write(w, http.StatusServiceUnavailable, (&apiError{kind: apiErrorType, message: "Too many requests are under way."}).body())
	}
}

// now is the sandbox's clock.
func (s *Server) now() time.Time {
	return s.settings.Clock().Add(time.Duration(s.ahead.Load()))
}

// mutate makes a change under the lock and returns its number in the journal.
func (s *Server) mutate(request, key, base string, do func(*change)) (seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &change{state: s.state, server: s, now: s.now(), request: request, key: key, base: base}
	c.runDue()
	do(c)
	before := s.state.nextAlarm()
	seq = c.commit()
	if s.state.nextAlarm() < before {
		s.wakeWatch()
	}
	return seq
}

// wakeWatch makes watch check its alarms again.
func (s *Server) wakeWatch() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// pruneEvery is the interval between two deletions of old objects.
const pruneEvery = time.Hour

// watch runs what no request causes: slow payments end, refunds settle, disputes begin.
func (s *Server) watch(ctx context.Context) {
	pruned := time.Time{}
	for ctx.Err() == nil {
		s.mutate("", "", "", func(c *change) {
			if c.now.Sub(pruned) > pruneEvery {
				c.prune(c.unix())
				pruned = c.now
			}
		})
		s.mu.Lock()
		wait := time.Duration(min(s.state.nextAlarm()-s.now().UnixMilli(), pruneEvery.Milliseconds())) * time.Millisecond
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-s.wakeup:
		case <-time.After(max(wait, time.Millisecond)):
		}
	}
}

// SetWebhook says where events are sent from now on; empty: nowhere.
func (s *Server) SetWebhook(target, secret string) error {
	if target != "" {
		if err := checkWebhook(target, secret); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings.WebhookURL, s.settings.WebhookSecret = target, secret
	return nil
}

// SetFaults injects faults into all requests.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return errors.New("sandbox: " + err.Error())
	}
	s.faults.set(f)
	return nil
}

// Advance moves the sandbox's clock forward. Everything due by then happens at once.
func (s *Server) Advance(d time.Duration) error {
	if d < 0 {
		return errors.New("sandbox: the clock goes forward only")
	}
	seq := s.mutate("", "", "", func(c *change) {
		s.ahead.Add(int64(d))
		c.ahead += d
		c.now = c.now.Add(d)
		c.records = append(c.records, encode("clock", "", c.ahead))
		c.runDue()
	})
	s.wakeWatch()
	s.outbound.wake()
	return s.journal.wait(seq)
}

// write sends an answer as JSON.
func write(w http.ResponseWriter, status int, body any) {
	raw, ok := body.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.MarshalIndent(body, "", "  "); err != nil {
			panic(err) // answers are made of what JSON has
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
	_, _ = w.Write([]byte{'\n'}) // raw may be kept for others
}

// Bounds of connections. A request that is never answered ends by Settings.Hang, so there
// is no limit on the time of an answer.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	mostHeader    = 64 << 10
	endTimeout    = 10 * time.Second
)

// Serve answers on a listener until ctx ends. Then requests that are under way end, and
// the sandbox is closed.
func Serve(ctx context.Context, listener net.Listener, s *Server) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var failed error
	select {
	case failed = <-served:
	case <-ctx.Done():
		s.Release()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			failed = errors.Join(err, server.Close())
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, s.Close())
}

// Running is a sandbox that answers in this process.
type Running struct {
	*Server
	URL string

	settings Settings
	end      context.CancelFunc
	ended    chan error
}

// Start starts a sandbox on an address, host:port; port 0 is a free one. It answers until
// Close.
func Start(ctx context.Context, address string, settings Settings) (*Running, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server, err := New(settings)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // processes that pay with it end first
	r := &Running{Server: server, URL: "http://" + listener.Addr().String(), settings: settings, end: end, ended: make(chan error, 1)}
	go func() { r.ended <- Serve(running, listener, server) }()
	return r, nil
}

// Close ends the sandbox and waits for it.
func (r *Running) Close() error {
	r.end()
	return <-r.ended
}

// Env are the settings by which processes pay at the sandbox. Buyers return to a page of
// the sandbox when a request names no other.
func (r *Running) Env() []string {
	return []string{
		"TRIPRIZE_PAYMENTS_ALLOW_TEST=true", "TRIPRIZE_PAYMENTS_STRIPE_KEY=" + r.settings.Key, "TRIPRIZE_PAYMENTS_STRIPE_URL=" + r.URL,
		"TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET=" + r.settings.WebhookSecret, "TRIPRIZE_PAYMENTS_RETURN_URL=" + r.URL + "/returned",
		"TRIPRIZE_PAYMENTS_STRIPE_PAYMENT_METHOD_TYPES=card,konbini",
	}
}
