package config

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Payments has the reservations of card purchases and the payment provider.
type Payments struct {
	Reservation  time.Duration `mapstructure:"reservation"     validate:"min=1s,max=24h"`
	AfterSaleEnd time.Duration `mapstructure:"after_sale_end"  validate:"min=1s,max=24h"`

	MaxPositionsPerUser          int           `mapstructure:"max_positions_per_user" validate:"min=1,max=100000"`
	ReturnURL                    string        `mapstructure:"return_url"      validate:"omitempty,http_url,max=2048"`
	AllowTest                    bool          `mapstructure:"allow_test"`
	Stripe                       Stripe        `mapstructure:"stripe"`
	MaxExtension, Lease, Recheck time.Duration `mapstructure:"-"`
	Concurrency                  int           `mapstructure:"-"`
}

// Stripe is the payment provider. Rates are calls per second and process.
type Stripe struct {
	Key           string        `mapstructure:"key"               validate:"max=255"`
	URL           string        `mapstructure:"url"               validate:"max=2048"`
	WebhookSecret string        `mapstructure:"webhook_secret"    validate:"max=2048"`
	Account       string        `mapstructure:"account"           validate:"omitempty,startswith=acct_,max=255"`
	MethodTypes   string        `mapstructure:"payment_method_types" validate:"max=1024"` // separated by commas: see PaymentMethodTypes
	Rate          int           `mapstructure:"rate"              validate:"min=1,max=10000"`
	Timeout       time.Duration `mapstructure:"-"`
	EndpointRate  int           `mapstructure:"-"`
}

// Enabled reports whether cards are accepted.
func (s Stripe) Enabled() bool { return s.Key != "" }

// Live reports whether the key moves real money.
func (s Stripe) Live() bool {
	return strings.HasPrefix(s.Key, "sk_live_") || strings.HasPrefix(s.Key, "rk_live_")
}

// WebhookSecrets returns the secrets that webhooks may be signed with.
func (s Stripe) WebhookSecrets() []string { return listOf(s.WebhookSecret) }

// PaymentMethodTypes returns the types of payment methods that buyers may use, in Stripe's words.
func (s Stripe) PaymentMethodTypes() []string { return listOf(s.MethodTypes) }

// CheckWebhooks rejects a key without a webhook secret. Only the api calls it, because it receives webhooks.
func (s Stripe) CheckWebhooks() error {
	if s.Enabled() && s.WebhookSecret == "" {
		return fault("payments.stripe.webhook_secret", "is required by the api together with payments.stripe.key; Stripe shows it where the webhook is set up")
	}
	return nil
}

// checkPayments checks what validation tags cannot. It repeats no secrets and no URLs.
func checkPayments(p Payments) error {
	return errors.Join(checkKey(p.Stripe, p.AllowTest), checkURL(p.Stripe), checkSecrets(p.Stripe), checkMethodTypes(p.Stripe))
}

// checkKey rejects invalid keys, and test keys unless they are allowed, because with one purchases cost nothing.
func checkKey(s Stripe, allowTest bool) error {
	if !s.Enabled() {
		return nil
	}
	for _, prefix := range []string{"sk_test_", "rk_test_", "sk_live_", "rk_live_"} {
		if rest, found := strings.CutPrefix(s.Key, prefix); found && rest != "" && printable(rest) {
			if s.Live() || allowTest {
				return nil
			}
			return fault("payments.stripe.key", "is a test key: purchases by card would cost nothing. For development set payments.allow_test (TRIPRIZE_PAYMENTS_ALLOW_TEST)")
		}
	}
	return fault("payments.stripe.key", "must be a secret or restricted key of Stripe: sk_test_…, rk_test_…, sk_live_… or rk_live_…")
}

func checkURL(s Stripe) error {
	if s.URL == "" {
		return nil
	}
	const name = "payments.stripe.url"
	u, plain := baseURL(s.URL)
	switch {
	case u == nil || strings.Trim(u.Path, "/") != "":
		return fault(name, "must be a server and nothing more: https://host:port")
	case s.Live() && (u.Scheme != "https" || u.Host != "api.stripe.com"):
		return fault(name, "is refused with a live key, which is for Stripe itself: leave the URL empty")
	case plain:
		return fault(name, httpsOnly)
	}
	return nil
}

const httpsOnly = "must be https://; http:// is for this machine only (127.0.0.1, ::1, localhost)"

// baseURL parses the address of a server, optionally with a path; nil: invalid. plain: http:// to another machine.
func baseURL(text string) (u *url.URL, plain bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, false
	}
	return u, u.Scheme == "http" && !loopback(u.Hostname())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// shortestSecret is the minimum length of a webhook's secret in bytes. Stripe's have 38.
const shortestSecret = 16

func checkSecrets(s Stripe) error {
	for _, secret := range s.WebhookSecrets() {
		if len(secret) < shortestSecret || !printable(secret) {
			return fault("payments.stripe.webhook_secret", "must be one or more secrets of at least %d bytes, whsec_…, separated by commas", shortestSecret)
		}
	}
	return nil
}

// methodType matches Stripe's types of payment methods, such as card or sepa_debit.
var methodType = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func checkMethodTypes(s Stripe) error {
	types := s.PaymentMethodTypes()
	if len(types) == 0 || slices.ContainsFunc(types, func(name string) bool { return !methodType.MatchString(name) }) {
		return fault("payments.stripe.payment_method_types", "must be one or more types of payment methods as Stripe spells them, separated by commas, such as card")
	}
	return nil
}

// printable reports whether a text is ASCII without blanks, as headers require.
func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
