package stripesim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"triprize/internal/domain/money"
)

// Settings of a sandbox. Zero values mean the defaults of [New].
type Settings struct {
	Key           string   // the secret key, sk_test_…; required
	Dir           string   // folder of the journal; empty: memory only
	WebhookURL    string   // where events are sent; empty: nowhere
	WebhookSecret string   // signs the webhooks
	WebhookEvents []string // types that are sent, as the enabled_events of an endpoint; empty: all

	Rate         int // requests a second in all, as at Stripe: 100; negative: no limit
	EndpointRate int // requests a second of one endpoint: 25; negative: no limit

	Processing time.Duration // how long pm_sandbox_processing takes: 3 minutes
	Later      time.Duration // after which refunds change their state, and disputes begin: 2 s
	Slow       time.Duration // how long pm_sandbox_slow delays an answer: 2 s
	Hang       time.Duration // how long a request without an answer keeps its connection: 5 minutes
	Late       time.Duration // by how much pm_sandbox_webhook_late delays webhooks: 10 s
	Reverse    time.Duration // how long pm_sandbox_webhook_reversed collects webhooks at most: 5 s
	Retry      time.Duration // pause before a failed webhook is sent again, doubled each time: 1 s

	SettlesIn    string  // currency of the balance, such as usd; empty: that of each charge
	ExchangeRate float64 // from minor units of a charge to those of SettlesIn

	Clock  func() time.Time // time.Now
	Logger *slog.Logger
}

// What Stripe does, and nobody changes.
const (
	keyLife           = 24 * time.Hour      // idempotency keys
	objectLife        = 30 * 24 * time.Hour // events; here also payments that have ended
	authorizationLife = 7 * 24 * time.Hour  // of money that is not captured
	webhookLife       = 72 * time.Hour      // webhooks that nobody takes
)

// check sets defaults and refuses what cannot work.
func (s *Settings) check() error {
	if !strings.HasPrefix(s.Key, "sk_test_") || len(s.Key) < len("sk_test_")+8 {
		return errors.New("sandbox: the key must be sk_test_ and at least 8 more characters")
	}
	if err := checkWebhook(s.WebhookURL, s.WebhookSecret); err != nil {
		return err
	}
	for _, name := range s.WebhookEvents {
		if !slices.Contains(eventTypes, name) {
			return fmt.Errorf("sandbox: %q is no type of events that can be chosen; these are: %s. Without a list all are sent", name, strings.Join(eventTypes, ", "))
		}
	}
	s.Rate, s.EndpointRate = cmp.Or(s.Rate, 100), cmp.Or(s.EndpointRate, 25)
	for value, standard := range map[*time.Duration]time.Duration{
		&s.Processing: 3 * time.Minute, &s.Later: 2 * time.Second, &s.Slow: 2 * time.Second, &s.Hang: 5 * time.Minute,
		&s.Late: 10 * time.Second, &s.Reverse: 5 * time.Second, &s.Retry: time.Second,
	} {
		if *value < 0 {
			return errors.New("sandbox: a duration is negative")
		}
		*value = cmp.Or(*value, standard)
	}
	s.SettlesIn = strings.ToLower(s.SettlesIn)
	if _, err := money.ParseCurrency(upper(s.SettlesIn)); s.SettlesIn != "" && (err != nil || s.ExchangeRate <= 0) {
		return errors.New("sandbox: another currency of the balance must be one such as usd, with an exchange rate above 0")
	}
	if s.Clock == nil {
		s.Clock = time.Now
	}
	s.Logger = cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	return nil
}

// eventTypes are the types of events that can be chosen: those that the sandbox sends,
// and those of the same objects that Stripe sends and the sandbox has no occasion for.
var eventTypes = []string{
	"charge.captured", "charge.dispute.closed", "charge.dispute.created", "charge.dispute.funds_reinstated", "charge.dispute.funds_withdrawn",
	"charge.dispute.updated", "charge.expired", "charge.failed", "charge.pending", "charge.refund.updated", "charge.refunded", "charge.succeeded", "charge.updated",
	"payment_intent.amount_capturable_updated", "payment_intent.canceled", "payment_intent.created", "payment_intent.partially_funded",
	"payment_intent.payment_failed", "payment_intent.processing", "payment_intent.requires_action", "payment_intent.succeeded",
	"refund.created", "refund.failed", "refund.updated",
}

func checkWebhook(target, secret string) error {
	switch {
	case target == "":
		return nil
	case !isURL(target):
		return fmt.Errorf("sandbox: the webhook URL %q is not an http or https URL", target)
	case secret == "":
		return errors.New("sandbox: a webhook URL needs a webhook secret, which signs what is sent there")
	}
	return nil
}
