package inventory

import "github.com/prometheus/client_golang/prometheus"

// HoldMetrics counts what becomes of holds in this process.
type HoldMetrics struct{ events *prometheus.CounterVec }

// What is counted. Reclaimed are holds that were over and in the way of somebody,
// before the sweep had seen them; expired are those that the sweep found.
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
		Help: "Holds by what became of them: made, used, released, extended, expired (found by the sweep), reclaimed (expired, and ended by somebody who wanted positions).",
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
