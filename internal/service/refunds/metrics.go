package refunds

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/refund"
)

type metrics struct {
	states *prometheus.CounterVec // by state
	faults *prometheus.CounterVec // by kind
	twice  prometheus.Counter
}

// NewRunner returns a Runner. db is a pool, or a view of it for transactions that may wait
// for locks; provider makes the refunds.
func NewRunner(db postgres.Pool, provider payprovider.Provider, settings Settings, logger *slog.Logger, registry prometheus.Registerer) *Runner {
	m := &metrics{
		states: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_refund_states_total", Help: "New states of card refunds. Those that failed or were canceled wait for an operator.",
		}, []string{"state"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_refund_faults_total", Help: "Calls for refunds that have not told their state, by kind. A mismatch is for a person.",
		}, []string{"kind"}),
		twice: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_refunds_paid_twice_total", Help: "Refunds whose money was given back twice: resolved by hand, or refunded by others, and made at the provider, too. Must stay 0.",
		}),
	}
	registry.MustRegister(m.states, m.faults, m.twice)
	telemetry.Expect(m.states, refund.Pending, refund.RequiresAction, refund.Succeeded, refund.Failed, refund.Canceled)
	telemetry.Expect(m.faults, payprovider.ErrorKinds...)
	return &Runner{db: db, provider: provider, settings: settings, logger: logger, metrics: m}
}
