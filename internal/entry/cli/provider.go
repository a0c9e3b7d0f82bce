package cli

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/stripe"
)

// newProvider returns the payment provider of an installation.
func newProvider(settings config.Settings) payprovider.Provider {
	return stripe.New(settings.Payments.Stripe, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}
