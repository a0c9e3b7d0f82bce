package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// waitingGauges tells how much money waits for people, from Postgres: every worker tells
// the same, also where cards are switched off.
type waitingGauges struct {
	db     postgres.DB
	logger *slog.Logger

	payments, refunds *prometheus.Desc

	mu       sync.Mutex
	at       time.Time
	paid     map[payment.Waiter]int
	returned int
}

func newWaitingGauges(db postgres.DB, logger *slog.Logger) *waitingGauges {
	return &waitingGauges{db: db, logger: logger,
		payments: prometheus.NewDesc("triprize_payments_waiting_for",
			"Payments that wait, by what for: operator (only an operator can end it: see GET /v1/payments), key (cards are switched off), provider (it does not answer, or is busy). Operator and key should stay 0. Every worker tells the same: take the maximum, not the sum.",
			[]string{"waiter"}, nil),
		refunds: prometheus.NewDesc("triprize_refunds_waiting_for_operator",
			"Card refunds that go on only when an operator has seen to them: GET /v1/refunds lists them. Should stay 0. Every worker tells the same.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (g *waitingGauges) Describe(out chan<- *prometheus.Desc) { out <- g.payments; out <- g.refunds }

// Collect implements prometheus.Collector.
func (g *waitingGauges) Collect(out chan<- prometheus.Metric) {
	paid, returned, ok := g.count()
	if !ok {
		return
	}
	for waiter, n := range paid {
		out <- prometheus.MustNewConstMetric(g.payments, prometheus.GaugeValue, float64(n), string(waiter))
	}
	out <- prometheus.MustNewConstMetric(g.refunds, prometheus.GaugeValue, float64(returned))
}

func (g *waitingGauges) count() (paid map[payment.Waiter]int, returned int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paid != nil && time.Since(g.at) < gaugesKept {
		return g.paid, g.returned, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesPatience)
	defer cancel()
	paid, err := payment.CountWaiting(ctx, g.db)
	if err == nil {
		returned, err = refund.CountForOperator(ctx, g.db)
	}
	if err != nil {
		g.logger.Warn("what waits for people is not counted: its gauges are missing", "error", err)
		return nil, 0, false
	}
	g.paid, g.returned, g.at = paid, returned, time.Now()
	return paid, returned, true
}
