package hold

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what becomes of holds in this process.
type Metrics struct{ events *prometheus.CounterVec }

// What is counted. Reclaimed are holds that were over and in the way of somebody,
// before the sweep had seen them; expired are those that the sweep found.
const (
	EventMade      = "made"
	EventUsed      = "used"
	EventReleased  = "released"
	EventExtended  = "extended"
	EventExpired   = "expired"
	EventReclaimed = "reclaimed"
)

// NewMetrics registers the counters, all at 0.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_holds_total",
		Help: "Holds by what became of them: made, used, released, extended, expired (found by the sweep), reclaimed (expired, and ended by somebody who wanted positions).",
	}, []string{"event"})}
	registry.MustRegister(m.events)
	for _, event := range []string{EventMade, EventUsed, EventReleased, EventExtended, EventExpired, EventReclaimed} {
		m.events.WithLabelValues(event)
	}
	return m
}

// Count adds n events; a nil Metrics counts nothing.
func (m *Metrics) Count(event string, n int) {
	if m != nil && n > 0 {
		m.events.WithLabelValues(event).Add(float64(n))
	}
}
