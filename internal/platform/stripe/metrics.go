package stripe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
)

// ok is the outcome of a call that succeeded; others are kinds of errors.
const ok = "ok"

type metrics struct {
	calls    *prometheus.CounterVec
	requests *prometheus.HistogramVec
	turns    *prometheus.HistogramVec

	forbidden *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_stripe_calls_total",
			Help: "Calls of Stripe by call and outcome: ok, or the kind of the error. A page of a list is a call; repetitions are not.",
		}, []string{"call", "outcome"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_stripe_request_duration_seconds",
			Help:    "Time of one HTTP exchange with Stripe, whatever its outcome. A call that is repeated has several.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"call"}),
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_stripe_turn_wait_seconds",
			Help:    "Time that a request waited for its turn, so that Stripe's rate limits hold. Those without a turn in time are counted as limited.",
			Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"call"}),
		forbidden: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "triprize_stripe_permission_missing",
			Help: "1 when the key lacks a permission that we need, or is refused, as the sweep missing-permissions of this process has found last; 0 when it has it.",
		}, []string{"permission"}),
	}
	for _, name := range []call{callCreate, callConfirm, callCapture, callCancel, callFetch, callRefund, callList} {
		m.requests.WithLabelValues(string(name))
		m.turns.WithLabelValues(string(name))
		m.calls.WithLabelValues(string(name), ok)
		for _, kind := range payprovider.ErrorKinds {
			m.calls.WithLabelValues(string(name), string(kind))
		}
	}
	if registry != nil {
		registry.MustRegister(m.calls, m.requests, m.turns, m.forbidden)
	}
	return m
}

// ended counts a call.
func (m *metrics) ended(name call, e *callError) {
	outcome := ok
	if e != nil {
		outcome = string(e.Kind)
	}
	m.calls.WithLabelValues(string(name), outcome).Inc()
}

func (m *metrics) exchanged(name call, began time.Time) {
	m.requests.WithLabelValues(string(name)).Observe(time.Since(began).Seconds())
}

func (m *metrics) waited(name call, began time.Time) {
	m.turns.WithLabelValues(string(name)).Observe(time.Since(began).Seconds())
}
