package telemetry

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

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
