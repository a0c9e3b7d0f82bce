package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/store/payment"
)

const (
	gaugesPatience = 2 * time.Second
	gaugesKept     = 5 * time.Second // between two looks at Postgres, however many ask
)

// paymentGauges tells how open payments are, from Postgres: every worker tells the same.
type paymentGauges struct {
	db     *pgxpool.Pool
	logger *slog.Logger

	phases, waiting, due, events, connections *prometheus.Desc

	mu   sync.Mutex
	at   time.Time
	last payment.Summary
}

func newPaymentGauges(db *pgxpool.Pool, logger *slog.Logger) *paymentGauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("triprize_payments_"+name, help, labels, nil)
	}
	return &paymentGauges{
		db: db, logger: logger,
		phases:      desc("open", "Payments that are not final, by phase, of all processes together.", "phase"),
		waiting:     desc("waiting", "Open payments that wait for the provider or for an operator."),
		due:         desc("oldest_due_seconds", "For how long the oldest due payment is due that no worker has."),
		events:      desc("oldest_event_seconds", "For how long the oldest event of the provider waits to be worked off."),
		connections: desc("connections_in_use", "Connections to Postgres that payments of this worker use."),
	}
}

// Describe implements prometheus.Collector.
func (g *paymentGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.phases, g.waiting, g.due, g.events, g.connections} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *paymentGauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(g.connections, float64(g.db.Stat().AcquiredConns()))
	s, ok := g.summary()
	if !ok {
		return
	}
	for phase, n := range s.Open {
		gauge(g.phases, float64(n), string(phase))
	}
	gauge(g.waiting, float64(s.Waiting))
	gauge(g.due, s.OldestDue.Seconds())
	gauge(g.events, s.OldestEvent.Seconds())
}

func (g *paymentGauges) summary() (payment.Summary, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < gaugesKept {
		return g.last, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesPatience)
	defer cancel()
	s, err := payment.Summarize(ctx, g.db)
	if err != nil {
		g.logger.Debug("payments are not counted", "error", err)
		return s, false
	}
	g.last, g.at = s, time.Now()
	return s, true
}
