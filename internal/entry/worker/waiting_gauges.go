package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/drawrecord"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// waitingGauges tells how much money waits for people, and which draws wait, from Postgres:
// every worker tells the same, also where cards are switched off.
type waitingGauges struct {
	db     postgres.DB
	logger *slog.Logger

	payments, refunds, draws, drawsAge *prometheus.Desc

	mu   sync.Mutex
	at   time.Time
	kept waitingCounts
}

type waitingCounts struct {
	paid     map[payment.Waiter]int // nil: nothing was counted
	returned int
	draws    drawrecord.Waits
}

func newWaitingGauges(db postgres.DB, logger *slog.Logger) *waitingGauges {
	return &waitingGauges{db: db, logger: logger,
		payments: prometheus.NewDesc("triprize_payments_waiting_for",
			"Payments that wait, by what for: operator (only an operator can end it: see GET /v1/payments), key (cards are switched off), provider (it does not answer, or is busy). Operator and key should stay 0. Every worker tells the same: take the maximum, not the sum.",
			[]string{"waiter"}, nil),
		refunds: prometheus.NewDesc("triprize_refunds_waiting_for_operator",
			"Card refunds that go on only when an operator has seen to them: GET /v1/refunds lists them. Should stay 0. Every worker tells the same.", nil, nil),
		draws: prometheus.NewDesc("triprize_draws_waiting",
			"Draws that wait for a round of the beacon, or for a timestamp: GET /v1/campaigns/{id}/draw says for what. Every worker tells the same.", nil, nil),
		drawsAge: prometheus.NewDesc("triprize_draws_waiting_age_seconds",
			"For how long the oldest campaign is drawing whose draw waits; 0 when none waits. More than a few minutes means that no relay of the beacon answers. Every worker tells the same.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (g *waitingGauges) Describe(out chan<- *prometheus.Desc) {
	out <- g.payments
	out <- g.refunds
	out <- g.draws
	out <- g.drawsAge
}

// Collect implements prometheus.Collector.
func (g *waitingGauges) Collect(out chan<- prometheus.Metric) {
	now, ok := g.count()
	if !ok {
		return
	}
	for waiter, n := range now.paid {
		out <- prometheus.MustNewConstMetric(g.payments, prometheus.GaugeValue, float64(n), string(waiter))
	}
	out <- prometheus.MustNewConstMetric(g.refunds, prometheus.GaugeValue, float64(now.returned))
	out <- prometheus.MustNewConstMetric(g.draws, prometheus.GaugeValue, float64(now.draws.Count))
	out <- prometheus.MustNewConstMetric(g.drawsAge, prometheus.GaugeValue, now.draws.Since.Seconds())
}

func (g *waitingGauges) count() (now waitingCounts, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kept.paid != nil && time.Since(g.at) < gaugesKept {
		return g.kept, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesPatience)
	defer cancel()
	var err error
	if now.paid, err = payment.CountWaiting(ctx, g.db); err == nil {
		now.returned, err = refund.CountForOperator(ctx, g.db)
	}
	if err == nil {
		now.draws, err = drawrecord.CountWaits(ctx, g.db)
	}
	if err != nil {
		g.logger.Warn("what waits for people is not counted: its gauges are missing", "error", err)
		return waitingCounts{}, false
	}
	g.kept, g.at = now, time.Now()
	return now, true
}
