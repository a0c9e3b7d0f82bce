package webhooks

import (
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/telemetry"
	"triprize/internal/store/webhook"
)

type metrics struct {
	attempts *prometheus.CounterVec // by outcome
	disabled *prometheus.CounterVec // by reason
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_webhook_attempts_total",
			Help: "Messages sent to endpoints of apps, by outcome: delivered, refused (by the answer), unanswered.",
		}, []string{"outcome"}),
		disabled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_webhook_endpoints_disabled_total",
			Help: "Endpoints that were disabled because of their answers, by reason: gone, failing. Their apps hear of nothing any more.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.attempts, m.disabled)
	telemetry.Expect(m.attempts, "delivered", "refused", "unanswered")
	telemetry.Expect(m.disabled, webhook.Gone, webhook.Failing)
	return m
}
