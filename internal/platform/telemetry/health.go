// Package telemetry sets up logs and metrics, and serves /healthz, /readyz and /metrics.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Check is one thing a process needs.
type Check struct {
	Name     string
	Required bool // without it the process is not ready; otherwise it is degraded
	Probe    func(ctx context.Context) error
}

// ErrMigrations is in the chain of a probe's error if the server answers but its schema is too old.
var ErrMigrations = errors.New("the schema is too old")

// ErrBranches is in that chain if the server is another branch of the data than the fleet uses.
var ErrBranches = errors.New("two branches")

// Health is the state that a process reports. It is starting until Started is called.
type Health struct {
	checks     []Check
	started    atomic.Bool
	draining   atomic.Bool
	waitingFor atomic.Pointer[string]
	causes     atomic.Pointer[Causes]
	livemode   atomic.Pointer[bool]
	faults     atomic.Int64 // consecutive failed writes
	faultAt    atomic.Int64 // time of the last one, in Unix nanoseconds
	refusedAt  atomic.Int64 // time of the last purchase that was refused as overloaded

	mu        sync.Mutex // held during the checks: concurrent callers share the result
	checkedAt time.Time
	last      Readiness
}

// NewHealth returns the Health of a process that is starting.
func NewHealth(checks ...Check) *Health { return &Health{checks: checks} }

// WaitFor sets what the start waits for.
func (h *Health) WaitFor(what string) { h.waitingFor.Store(&what) }

// Started ends the state starting: from now on the checks count.
func (h *Health) Started() { h.started.Store(true) }

// Drain makes the process unavailable, whatever the checks say: it serves requests and is about to end.
func (h *Health) Drain() { h.draining.Store(true) }

// Degrade adds causes to the readiness: they make it degraded, never unavailable.
func (h *Health) Degrade(c *Causes) { h.causes.Store(c) }

// TakeCards sets that the process uses a payment provider, and whether in live mode.
func (h *Health) TakeCards(livemode bool) { h.livemode.Store(&livemode) }

// Wrote records the result of a write: nil, or a fault that the write did not cause.
func (h *Health) Wrote(err error) {
	if err == nil {
		h.faults.Store(0)
		return
	}
	h.faultAt.Store(time.Now().UnixNano())
	h.faults.Add(1)
}

// writeFaultTTL is how long faults count without a further write.
const writeFaultTTL = time.Minute

// WritesFail reports whether at least the last two writes failed.
func (h *Health) WritesFail() bool {
	return h.faults.Load() >= 2 && time.Since(time.Unix(0, h.faultAt.Load())) < writeFaultTTL
}

// Refused records that a purchase was refused because this server, or what works for it, is overloaded.
func (h *Health) Refused() { h.refusedAt.Store(time.Now().UnixNano()) }

// Refuses reports whether a purchase was refused in the last half a minute.
func (h *Health) Refuses() bool { return time.Since(time.Unix(0, h.refusedAt.Load())) < 30*time.Second }

// Starting reports whether the process is still starting, and what it waits for, if known.
func (h *Health) Starting() (waitingFor string, starting bool) {
	if h.started.Load() {
		return "", false
	}
	if what := h.waitingFor.Load(); what != nil {
		return *what, true
	}
	return "", true
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Status     string            `json:"status"`                // ok, degraded, unavailable or starting
	WaitingFor string            `json:"waiting_for,omitempty"` // while it is starting
	Checks     map[string]string `json:"checks"`                // ok, unavailable, migrations or two_branches
	Causes     []string          `json:"causes,omitempty"`      // what degrades the whole system
	Unknown    []string          `json:"unknown,omitempty"`     // causes that could not be determined
	Livemode   *bool             `json:"livemode,omitempty"`    // of the payment provider; nil: this process uses none

	Well  []string             `json:"-"` // causes that do not hold
	Since map[string]time.Time `json:"-"` // when this process saw the causes begin that hold
}

// The values of Readiness.Status.
const (
	StatusOK          = "ok"
	StatusDegraded    = "degraded"
	StatusUnavailable = "unavailable"
	StatusStarting    = "starting"

	checkMigrations = "migrations" // of a check
	checkBranches   = "two_branches"
)

// HTTPStatus is the status of /readyz: 200, or 503 for a process that cannot work.
func (r Readiness) HTTPStatus() int {
	if r.Status == StatusUnavailable || r.Status == StatusStarting {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// The timeouts of probes, which run concurrently. A short delay of a required dependency does not make a process
// unavailable; optional ones must not delay the answer.
const (
	requiredTimeout = 2 * time.Second
	optionalTimeout = 400 * time.Millisecond
)

// checkInterval is how long all callers share the result of the checks.
const checkInterval = time.Second

// Ready returns the result of checks that is less than checkInterval old, because anybody may ask.
func (h *Health) Ready() Readiness {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checkedAt.IsZero() || time.Since(h.checkedAt) >= checkInterval {
		h.last = h.check(context.Background())
		h.checkedAt = time.Now()
	}
	ready := h.last
	ready.Livemode, ready.Since = h.livemode.Load(), make(map[string]time.Time)
	if c := h.causes.Load(); c != nil {
		c.read(&ready)
	}
	if ready.Status == StatusOK && len(ready.Causes)+len(ready.Unknown) > 0 {
		ready.Status = StatusDegraded
	}
	if h.draining.Load() {
		ready.Status = StatusUnavailable
	}
	if what, starting := h.Starting(); starting {
		ready.Status, ready.WaitingFor = StatusStarting, what
	}
	return ready
}

// check runs all checks.
func (h *Health) check(ctx context.Context) Readiness {
	ready := Readiness{Status: StatusOK, Checks: make(map[string]string, len(h.checks))}
	errs := make([]error, len(h.checks))
	var probes sync.WaitGroup
	for i, check := range h.checks {
		timeout := optionalTimeout
		if check.Required {
			timeout = requiredTimeout
		}
		probes.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			errs[i] = check.Probe(bounded)
		})
	}
	probes.Wait()
	for i, check := range h.checks {
		if errs[i] == nil {
			ready.Checks[check.Name] = StatusOK
			continue
		}
		ready.Checks[check.Name] = StatusUnavailable // without the reason, because anybody may ask
		if errors.Is(errs[i], ErrMigrations) {
			ready.Checks[check.Name] = checkMigrations
		} else if errors.Is(errs[i], ErrBranches) {
			ready.Checks[check.Name] = checkBranches
		}
		if check.Required {
			ready.Status = StatusUnavailable
		} else if ready.Status == StatusOK {
			ready.Status = StatusDegraded
		}
	}
	return ready
}

// Cause is a possible fault of the whole system.
type Cause struct {
	Name    string // public, in /readyz
	Holds   bool
	Details []any // for the log alone
}

// Causes degrade the whole system: each holds, does not hold, or is unknown. /readyz and a gauge show them; an
// unknown cause has no gauge. The begin and the end of a cause are logged.
type Causes struct {
	names  []string
	gauges *prometheus.GaugeVec
	logger *slog.Logger

	mu     sync.Mutex
	known  map[string]bool      // the result of the last check
	active map[string]time.Time // since when causes hold that are logged as holding
}

// NewCauses returns Causes with these names, all unknown.
func NewCauses(logger *slog.Logger, registry prometheus.Registerer, names ...string) *Causes {
	c := &Causes{names: names, logger: logger, active: make(map[string]time.Time), gauges: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "triprize_degraded",
		Help: "1 while the cause degrades the whole system, otherwise 0; missing while unknown. Every process reports the same value, except for draw_key_wrong, overloaded, provider_key and writes_failing, which are its own."}, []string{"cause"})}
	registry.MustRegister(c.gauges)
	return c
}

// Set replaces the results. Causes that are left out become unknown.
func (c *Causes) Set(found ...Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = make(map[string]bool, len(found))
	for _, name := range c.names {
		if !slices.ContainsFunc(found, func(one Cause) bool { return one.Name == name }) {
			c.gauges.DeleteLabelValues(name)
		}
	}
	for _, one := range found {
		c.known[one.Name] = one.Holds
		value := 0.0
		if one.Holds {
			value = 1
		}
		c.gauges.WithLabelValues(one.Name).Set(value)
		if _, active := c.active[one.Name]; one.Holds == active {
			continue
		}
		if one.Holds {
			c.active[one.Name] = time.Now()
			c.logger.Warn("degraded", append([]any{"cause", one.Name}, one.Details...)...)
		} else {
			delete(c.active, one.Name)
			c.logger.Info("no longer degraded", "cause", one.Name)
		}
	}
}

// read adds what is known of the causes to a readiness.
func (c *Causes) read(ready *Readiness) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.names {
		if holds, known := c.known[name]; !known {
			ready.Unknown = append(ready.Unknown, name)
		} else if holds {
			ready.Causes, ready.Since[name] = append(ready.Causes, name), c.active[name]
		} else {
			ready.Well = append(ready.Well, name)
		}
	}
}
