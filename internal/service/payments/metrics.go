package payments

import (
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/payment"
)

type metrics struct {
	runs       *prometheus.CounterVec // by outcome
	phases     *prometheus.CounterVec // by phase
	faults     *prometheus.CounterVec // by call and kind
	mismatches *prometheus.CounterVec // by call
	unexpected prometheus.Counter
	duration   prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_runs_total",
			Help: "Runs of payments by this worker, by outcome: nothing, waits, fenced, conclude."}, []string{"outcome"}),
		phases: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_phases_total",
			Help: "Phases that this worker has stored."}, []string{"phase"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_faults_total",
			Help: "Calls of the provider for payments that failed, by call and by what it means (kind)."}, []string{"call", "kind"}),
		mismatches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_mismatches_total",
			Help: "Answers of the provider with another amount, currency, mode or purchase than ours, by call. Must stay 0."}, []string{"call"}),
		unexpected: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_unexpected_states_total",
			Help: "Looks at payments that wait for an operator, because the provider says what cannot be. Must stay 0."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_payment_duration_seconds",
			Help: "Time from the reservation to the capture.", Buckets: []float64{.25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600}}),
	}
	registry.MustRegister(m.runs, m.phases, m.faults, m.mismatches, m.unexpected, m.duration)
	telemetry.Expect(m.runs, Nothing, Waits, Fenced, Conclude)
	telemetry.Expect(m.phases, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing,
		payment.Capturing, payment.Captured, payment.Expiring, payment.Late, payment.Ended, payment.RefundDue)
	for _, c := range []call{callCreate, callFetch, callConfirm, callCapture, callCancel} {
		telemetry.Expect(m.mismatches, c)
		for _, kind := range payprovider.ErrorKinds {
			m.faults.WithLabelValues(string(c), string(kind))
		}
	}
	return m
}
