package cli

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/stripe"
)

// newProvider returns the payment provider of an installation. Its calls are paced together
// with those of the workers.
func newProvider(settings config.Settings, rdb redis.UniversalClient) payprovider.Provider {
	return stripe.New(settings.Payments.Stripe, rdb, settings.Redis.Namespace, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}
