package inventory

import "github.com/prometheus/client_golang/prometheus"

// HoldMetrics counts what this process does with holds.
type HoldMetrics struct{ events *prometheus.CounterVec }

// The events that are counted. A hold that is over is expired when the sweep ends
// it, and reclaimed when a transaction that needs positions ends it first.
const (
	HoldsMade      = "made"
	HoldsUsed      = "used"
	HoldsReleased  = "released"
	HoldsExtended  = "extended"
	HoldsExpired   = "expired"
	HoldsReclaimed = "reclaimed"
)

// NewHoldMetrics registers the counters, all at 0.
func NewHoldMetrics(registry prometheus.Registerer) *HoldMetrics {
	m := &HoldMetrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_holds_total",
		Help: "Events of holds: made, used, released, extended, expired (ended by the sweep), reclaimed (expired, and ended by a request for positions before the sweep).",
	}, []string{"event"})}
	registry.MustRegister(m.events)
	for _, event := range []string{HoldsMade, HoldsUsed, HoldsReleased, HoldsExtended, HoldsExpired, HoldsReclaimed} {
		m.events.WithLabelValues(event)
	}
	return m
}

// Count adds n events; a nil HoldMetrics counts nothing.
func (m *HoldMetrics) Count(event string, n int) {
	if m != nil && n > 0 {
		m.events.WithLabelValues(event).Add(float64(n))
	}
}
