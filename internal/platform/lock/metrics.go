package lock

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	wait      *prometheus.HistogramVec
	conflicts prometheus.Counter
	lost      prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "triprize_lock_wait_seconds",
			Help:    "Time until locks were acquired or given up, by outcome: acquired, taken or no_quorum. A caller who left is not counted.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"outcome"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_lock_conflicts_total", Help: "Tries that found a lock taken. One acquisition may try several times.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_lock_lost_total", Help: "Acquisitions whose holder lost a lock before it gave it back.",
		}),
	}
	for _, outcome := range []string{"acquired", "taken", "no_quorum"} {
		m.wait.WithLabelValues(outcome)
	}
	registry.MustRegister(m.wait, m.conflicts, m.lost)
	return m
}

// acquired records how an acquisition ended.
func (m *metrics) acquired(err error, took time.Duration) {
	outcome := "acquired"
	switch {
	case errors.Is(err, ErrTaken):
		outcome = "taken"
	case errors.Is(err, ErrNoQuorum):
		outcome = "no_quorum"
	case err != nil:
		return
	}
	m.wait.WithLabelValues(outcome).Observe(took.Seconds())
}
