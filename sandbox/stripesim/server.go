// Package stripesim is a simulator of Stripe: an HTTP server that a client of Stripe talks
// to without knowing. It has payment intents, charges, refunds, disputes and events,
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
// Changes are written to the journal before they are answered, with the answer of their
// idempotency key. So a sandbox that was killed goes on where it was; the machine must not
// crash. Without a folder everything is in memory only.
//
// One lock guards all state. Nothing is sent, and nobody waits, while it is held.
package stripesim

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Server is a sandbox. It is an http.Handler for the API of Stripe, the page where a
// buyer authenticates, and the controls.
type Server struct {
	mux     *http.ServeMux
	client  *http.Client  // of webhooks
	slots   chan struct{} // of requests under way
	senders chan struct{} // of webhooks under way

	mu       sync.Mutex
	settings Settings
	journal  *journal
	state    *state
	inUse    map[string]bool // idempotency keys of calls that are not yet answered
	limits   map[string]*rate.Limiter
	faults   Faults
	random   *rand.Rand // picks the faults
	away     Away
	key      Key
	counts   counts

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
		settings: settings, state: newState(), inUse: make(map[string]bool), limits: make(map[string]*rate.Limiter),
		counts: counts{endpoints: make(map[string]int64)}, wakeup: make(chan struct{}, 1),
		client: newWebhookClient(), slots: make(chan struct{}, mostAtOnce), senders: make(chan struct{}, inFlight),
	}
	var err error
	if s.journal, err = openJournal(settings.Dir, s.state); err != nil {
		return nil, err
	}
	if err := errors.Join(s.SetFaults(Faults{}), s.journal.rewrite(s.state)); err != nil {
		return nil, errors.Join(err, s.journal.close())
	}
	s.state.resume()
	s.closed, s.stop = context.WithCancel(context.Background())
	s.mux = s.routes()
	s.owned.Go(s.watch)
	return s, nil
}

// Close ends what is under way, waits for it, and closes the journal. Requests must have
// ended before, but for those that are never answered.
func (s *Server) Close() error {
	s.stop()
	s.owned.Wait()
	s.client.CloseIdleConnections()
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

// now is the sandbox's clock. The lock is held.
func (s *Server) now() time.Time { return s.settings.Clock().Add(s.state.ahead) }

// mutate makes a change under the lock. It fails when the journal cannot be written.
func (s *Server) mutate(r *call, do func(*change)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &change{state: s.state, server: s, now: s.now(), call: r}
	c.runDue()
	do(c)
	return c.commit()
}

// itself is the call of what happens without one.
var itself = &call{}

// wake makes watch check the alarms again.
func (s *Server) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// pruneEvery is the interval between two deletions of old objects.
const pruneEvery = time.Hour

// watch runs what no request causes: slow payments end, refunds settle, disputes begin, webhooks
// are sent again.
func (s *Server) watch() {
	var pruned time.Time
	for s.closed.Err() == nil {
		_ = s.mutate(itself, func(c *change) { // the next request is answered with the error
			if c.now.Sub(pruned) > pruneEvery {
				c.prune(c.unix())
				pruned = c.now
			}
		})
		s.mu.Lock()
		wait := pruneEvery
		if len(s.state.due) > 0 {
			wait = min(wait, time.Duration(s.state.due[0].at-s.now().UnixMilli())*time.Millisecond)
		}
		s.mu.Unlock()
		select {
		case <-s.closed.Done():
		case <-s.wakeup:
		case <-time.After(max(wait, time.Millisecond)):
		}
	}
}

// SetWebhook says where events are sent from now on; empty: nowhere.
func (s *Server) SetWebhook(target, secret string) error {
	if err := checkWebhook(target, secret); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings.WebhookURL, s.settings.WebhookSecret = target, secret
	return nil
}

// Advance moves the sandbox's clock forward. Everything due by then happens at once.
func (s *Server) Advance(d time.Duration) error {
	if d < 0 {
		return errors.New("sandbox: the clock goes forward only")
	}
	defer s.wake()
	return s.mutate(itself, func(c *change) {
		c.ahead += d
		c.now = c.now.Add(d)
		c.records = append(c.records, record{"clock", "", encode(c.ahead)})
		c.runDue()
	})
}

// write sends an answer as JSON.
func write(w http.ResponseWriter, status int, body any) {
	raw, ok := body.(json.RawMessage)
	if !ok {
		raw, _ = json.MarshalIndent(body, "", "  ") // it is made of what JSON has
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
	_, _ = w.Write([]byte{'\n'}) // raw may be stored for others
}

// Bounds of connections. A request that is never answered ends by Settings.Hang, so there
// is no limit on the time of an answer.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	mostHeader    = 64 << 10
	endTimeout    = 10 * time.Second
)

// Running is a sandbox that answers in this process.
type Running struct {
	*Server
	URL string

	http   *http.Server
	served sync.WaitGroup
	failed error // why it has stopped serving before Close; read it after served
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
	r := &Running{Server: server, URL: "http://" + listener.Addr().String(),
		http: &http.Server{Handler: server, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader}}
	r.served.Go(func() {
		if err := r.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) { // it ends with Close
			r.failed = err
		}
	})
	return r, nil
}

// Close ends the sandbox and waits for it.
func (r *Running) Close() error {
	r.Release()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := r.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, r.http.Close())
	}
	r.served.Wait()
	return errors.Join(err, r.failed, r.Server.Close())
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
