package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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

// ErrMigrations is in the chain of the error of a probe whose server answers, but has a schema
// that is too old.
var ErrMigrations = errors.New("the schema is too old")

// Health is the state that a process reports. It is starting until Started is
// called, with any result of its checks.
type Health struct {
	checks     []Check
	started    atomic.Bool
	waitingFor atomic.Pointer[string]
	causes     atomic.Pointer[Causes]
	livemode   atomic.Pointer[bool]
	faults     atomic.Int64 // of writes, in a row
	faultAt    atomic.Int64 // the last of them, in nanoseconds since 1970

	mu     sync.Mutex // held during a look: others that ask wait for it, and share it
	looked time.Time
	last   Readiness
}

// NewHealth returns the Health of a process that is starting.
func NewHealth(checks ...Check) *Health { return &Health{checks: checks} }

// WaitFor sets what the process waits for before it can start.
func (h *Health) WaitFor(what string) { h.waitingFor.Store(&what) }

// Started ends the state starting: from now on the checks decide.
func (h *Health) Started() { h.started.Store(true) }

// Degrade lets causes of the whole system show in the readiness: they degrade it, and never
// make this process unavailable.
func (h *Health) Degrade(c *Causes) { h.causes.Store(c) }

// TakeCards says that the process uses a payment provider, and whether in live mode.
func (h *Health) TakeCards(livemode bool) { h.livemode.Store(&livemode) }

// Wrote notes how a write of this process has ended: nil, or a fault that the write did not cause.
func (h *Health) Wrote(err error) {
	if err == nil {
		h.faults.Store(0)
		return
	}
	h.faultAt.Store(time.Now().UnixNano())
	h.faults.Add(1)
}

// writesForgotten is how long faults count when no further write comes.
const writesForgotten = time.Minute

// WritesFail tells whether the last two writes or more have failed.
func (h *Health) WritesFail() bool {
	return h.faults.Load() >= 2 && time.Since(time.Unix(0, h.faultAt.Load())) < writesForgotten
}

// Starting tells whether the process is still starting, and what it waits for, if
// that is known.
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
	Checks     map[string]string `json:"checks"`                // ok, unavailable or migrations
	Causes     []string          `json:"causes,omitempty"`      // what degrades the whole system
	Unknown    []string          `json:"unknown,omitempty"`     // causes of which it is not known whether they hold
	Livemode   *bool             `json:"livemode,omitempty"`    // of the payment provider; nil: this process uses none
}

// The words of Readiness.Status.
const (
	StatusOK          = "ok"
	StatusDegraded    = "degraded"
	StatusUnavailable = "unavailable"
	StatusStarting    = "starting"

	checkMigrations = "migrations" // of a check
)

// HTTPStatus is what /readyz answers with: 200, or 503 for a process that cannot
// do its work.
func (r Readiness) HTTPStatus() int {
	if r.Status == StatusUnavailable || r.Status == StatusStarting {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// The bounds of the probes of one /readyz. They run at the same time, so one that hangs does not
// delay the others. A process is not unavailable for a moment's delay of what it requires; for
// the rest the answer does not wait long.
const (
	requiredTimeout = 2 * time.Second
	optionalTimeout = 400 * time.Millisecond
)

// lookEvery is how long the result of a look at everything is shared by all who ask.
const lookEvery = time.Second

// Ready returns what the checks found less than a second ago. So the number of those
// who ask, which may be anybody, costs nothing.
func (h *Health) Ready() Readiness {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looked.IsZero() || time.Since(h.looked) >= lookEvery {
		h.last = h.look(context.Background())
		h.looked = time.Now()
	}
	ready := h.last
	ready.Livemode = h.livemode.Load()
	if c := h.causes.Load(); c != nil {
		ready.Causes, ready.Unknown = c.read()
	}
	if ready.Status == StatusOK && len(ready.Causes)+len(ready.Unknown) > 0 {
		ready.Status = StatusDegraded
	}
	if what, starting := h.Starting(); starting {
		ready.Status, ready.WaitingFor = StatusStarting, what
	}
	return ready
}

// look runs every check, and returns when all are done.
func (h *Health) look(ctx context.Context) Readiness {
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
		ready.Checks[check.Name] = StatusUnavailable // the reason stays private: anybody may ask here
		if errors.Is(errs[i], ErrMigrations) {
			ready.Checks[check.Name] = checkMigrations
		}
		if check.Required {
			ready.Status = StatusUnavailable
		} else if ready.Status == StatusOK {
			ready.Status = StatusDegraded
		}
	}
	return ready
}

// Cause is one thing that is wrong with the whole system, or not.
type Cause struct {
	Name    string // fixed and short: anybody may read it in /readyz
	Holds   bool
	Details []any // for the log alone
}

// Causes are what degrades the whole system: each holds, does not hold, or is not known.
// They show in /readyz and in a gauge; a cause that is not known has no gauge. The log has
// one line when a cause begins, and one when it ends.
type Causes struct {
	names  []string
	gauge  *prometheus.Desc
	logger *slog.Logger

	mu    sync.Mutex
	known map[string]bool // what the last look has found
	begun map[string]bool // what the log says to hold
}

// NewCauses returns the causes with these names. None is known yet.
func NewCauses(logger *slog.Logger, registry prometheus.Registerer, names ...string) *Causes {
	c := &Causes{names: names, logger: logger, begun: make(map[string]bool),
		gauge: prometheus.NewDesc("triprize_degraded", "1 while the cause degrades the whole system, otherwise 0; missing while that is not known. Every process tells the same, but for draw_key_wrong.", []string{"cause"}, nil)}
	registry.MustRegister(c)
	return c
}

// Set says what a look has found. Causes that it leaves out are not known.
func (c *Causes) Set(found ...Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = make(map[string]bool, len(found))
	for _, one := range found {
		c.known[one.Name] = one.Holds
		if one.Holds == c.begun[one.Name] {
			continue
		}
		c.begun[one.Name] = one.Holds
		if one.Holds {
			c.logger.Warn("degraded", append([]any{"cause", one.Name}, one.Details...)...)
		} else {
			c.logger.Info("no longer degraded", "cause", one.Name)
		}
	}
}

// read returns the names of the causes that hold, and of those that are not known.
func (c *Causes) read() (hold, unknown []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.names {
		if holds, known := c.known[name]; !known {
			unknown = append(unknown, name)
		} else if holds {
			hold = append(hold, name)
		}
	}
	return hold, unknown
}

// Describe implements prometheus.Collector.
func (c *Causes) Describe(out chan<- *prometheus.Desc) { out <- c.gauge }

// Collect implements prometheus.Collector.
func (c *Causes) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, holds := range c.known {
		value := 0.0
		if holds {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(c.gauge, prometheus.GaugeValue, value, name)
	}
}
