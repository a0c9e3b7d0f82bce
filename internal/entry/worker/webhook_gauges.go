package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/webhook"
)

// webhookGauges tells how far deliveries to apps are behind, from Postgres: every worker
// tells the same.
type webhookGauges struct {
	db     postgres.DB
	logger *slog.Logger

	due, paused, disabled, oldest *prometheus.Desc

	mu   sync.Mutex
	at   time.Time
	kept *webhook.Waiting // nil: nothing was counted
}

func newWebhookGauges(db postgres.DB, logger *slog.Logger) *webhookGauges {
	return &webhookGauges{db: db, logger: logger,
		due: prometheus.NewDesc("triprize_webhook_endpoints_due",
			"Endpoints of apps that something is due for, and that are not paused. Every worker tells the same: take the maximum, not the sum.", nil, nil),
		paused: prometheus.NewDesc("triprize_webhook_endpoints_paused",
			"Endpoints of apps that rest because they have failed. Every worker tells the same.", nil, nil),
		disabled: prometheus.NewDesc("triprize_webhook_endpoints_disabled",
			"Endpoints of apps that are disabled. Every worker tells the same.", nil, nil),
		oldest: prometheus.NewDesc("triprize_webhook_due_age_seconds",
			"For how long the longest due event has waited, of endpoints that are not paused. More than a minute means that workers are too few, or stopped. Every worker tells the same.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (g *webhookGauges) Describe(out chan<- *prometheus.Desc) {
	out <- g.due
	out <- g.paused
	out <- g.disabled
	out <- g.oldest
}

// Collect implements prometheus.Collector.
func (g *webhookGauges) Collect(out chan<- prometheus.Metric) {
	now := g.count()
	if now == nil {
		return
	}
	out <- prometheus.MustNewConstMetric(g.due, prometheus.GaugeValue, float64(now.Endpoints))
	out <- prometheus.MustNewConstMetric(g.paused, prometheus.GaugeValue, float64(now.Paused))
	out <- prometheus.MustNewConstMetric(g.disabled, prometheus.GaugeValue, float64(now.Disabled))
	out <- prometheus.MustNewConstMetric(g.oldest, prometheus.GaugeValue, now.Oldest.Seconds())
}

func (g *webhookGauges) count() *webhook.Waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kept != nil && time.Since(g.at) < gaugesKept {
		return g.kept
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesPatience)
	defer cancel()
	now, err := webhook.CountWaiting(ctx, g.db)
	if err != nil {
		g.logger.Warn("what waits for apps is not counted: its gauges are missing", "error", err)
		return nil
	}
	g.kept, g.at = &now, time.Now()
	return g.kept
}
