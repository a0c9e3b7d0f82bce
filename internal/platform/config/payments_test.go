package config

import (
	"strings"
	"testing"
)

// Every value that may be secret is hunter2 here: no reason repeats it.
func TestPaymentsAreRefusedWithNameAndReason(t *testing.T) {
	const key, secret = "key: sk_test_hunter2", "webhook_secret: whsec_hunter2hunter2"
	for name, c := range map[string]struct {
		stripe, payments string
		want             string // empty: accepted
	}{
		"a test key in production":  {payments: "stripe: {key: sk_test_hunter2}", want: "payments.stripe.key (TRIPRIZE_PAYMENTS_STRIPE_KEY): is a test key"},
		"restricted, for tests":     {payments: "stripe: {key: rk_test_hunter2, url: \"https://sandbox.example\"}", want: "payments.allow_test"},
		"a test key":                {stripe: key},
		"a restricted key":          {stripe: "key: rk_live_hunter2"},
		"a live key at Stripe":      {stripe: "key: sk_live_hunter2\n    url: https://api.stripe.com"},
		"no section":                {stripe: ""},
		"a sandbox here":            {stripe: key + "\n    url: http://127.0.0.1:4711"},
		"a sandbox here, by IPv6":   {stripe: key + "\n    url: http://[::1]:4711/"},
		"a sandbox elsewhere":       {stripe: key + "\n    url: https://sandbox.example:4711"},
		"two secrets":               {stripe: secret + " , whsec_hunter2hunter3"},
		"a publishable key":         {stripe: "key: pk_test_hunter2", want: "setting payments.stripe.key (TRIPRIZE_PAYMENTS_STRIPE_KEY): must be a secret or restricted key"},
		"a prefix only":             {stripe: "key: sk_test_", want: "payments.stripe.key"},
		"a key with a blank":        {stripe: "key: sk_test_hunter2 hunter2", want: "payments.stripe.key"},
		"a live key in a sandbox":   {stripe: "key: sk_live_hunter2\n    url: http://127.0.0.1:4711", want: "payments.stripe.url (TRIPRIZE_PAYMENTS_STRIPE_URL): is refused with a live key"},
		"a live restricted key":     {stripe: "key: rk_live_hunter2\n    url: https://sandbox.example", want: "is refused with a live key"},
		"a live key, not encrypted": {stripe: "key: sk_live_hunter2\n    url: http://api.stripe.com", want: "payments.stripe.url (TRIPRIZE_PAYMENTS_STRIPE_URL): must be a server"},
		"a sandbox, not encrypted":  {stripe: key + "\n    url: http://hunter2.example", want: "must be https://"},
		"a sandbox by name":         {stripe: key + "\n    url: http://127.0.0.1.hunter2.example", want: "must be https://"},
		"a URL with a password":     {stripe: key + "\n    url: https://user:hunter2@sandbox.example", want: "a server and nothing more"},
		"a URL with a path":         {stripe: key + "\n    url: https://sandbox.example/hunter2", want: "a server and nothing more"},
		"no URL":                    {stripe: key + "\n    url: \"hunter2:\"", want: "payments.stripe.url"},
		"a short secret":            {stripe: "webhook_secret: hunter2", want: "payments.stripe.webhook_secret (TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET): must be one or more secrets"},
		"nothing beside a comma":    {stripe: secret + ",", want: "payments.stripe.webhook_secret"},
		"not an account":            {stripe: "account: hunter", want: "payments.stripe.account (TRIPRIZE_PAYMENTS_STRIPE_ACCOUNT): must begin with acct_"},
		"other methods":             {stripe: "payment_method_types: card , ideal"},
		"no methods":                {stripe: "payment_method_types: \"\"", want: "payments.stripe.payment_method_types (TRIPRIZE_PAYMENTS_STRIPE_PAYMENT_METHOD_TYPES): must be one or more types"},
		"no method":                 {stripe: "payment_method_types: Cards", want: "payments.stripe.payment_method_types"},
		"no rate":                   {stripe: "rate: 0", want: "payments.stripe.rate"},
		"unknown":                   {stripe: "keys: hunter2", want: "unknown setting payments.stripe.keys"},
		"too short a reservation":   {payments: "reservation: 900ms", want: "payments.reservation"},
		"too long a reservation":    {payments: "reservation: 25h", want: "payments.reservation"},
		"no place to return to":     {payments: "return_url: hunter2", want: "payments.return_url (TRIPRIZE_PAYMENTS_RETURN_URL): must be an http:// or https:// URL"},
		"one connection":            {payments: "max_connections: 1", want: "payments.max_connections"},
		"a scalar for a section":    {payments: "stripe: 7", want: "unknown setting payments.stripe"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "payments:\n"
			if c.payments != "" {
				text += "  " + c.payments + "\n"
			} else {
				text += "  allow_test: true\n  stripe:\n    " + c.stripe + "\n"
			}
			if c.want == "" {
				loads(t, text)
			} else {
				loads(t, text, c.want)
			}
		})
	}
}

func TestASettingOfASectionInASectionComesFromTheEnvironmentToo(t *testing.T) {
	required(t)
	t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_KEY", "sk_test_a")
	t.Setenv("TRIPRIZE_PAYMENTS_ALLOW_TEST", "true")
	t.Setenv("TRIPRIZE_PAYMENTS_STRIPE_RATE", "7")
	s, err := Load(write(t, "payments:\n  stripe:\n    account: acct_1\n    rate: 9\n"))
	if err != nil || s.Payments.Stripe.Key != "sk_test_a" || s.Payments.Stripe.Rate != 7 || s.Payments.Stripe.Account != "acct_1" {
		t.Errorf("got %+v, %v", s.Payments.Stripe, err)
	}
}

func TestAKeyWithoutAWebhookSecretIsRefusedWhereWebhooksArrive(t *testing.T) {
	if err := (Stripe{Key: "sk_test_a"}).CheckWebhooks(); err == nil || !strings.Contains(err.Error(), "setting payments.stripe.webhook_secret (TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET): is required") {
		t.Errorf("got %v", err)
	}
	for _, s := range []Stripe{{}, {Key: "sk_test_a", WebhookSecret: "whsec_1"}, {WebhookSecret: "whsec_1"}} {
		if err := s.CheckWebhooks(); err != nil {
			t.Error(err)
		}
	}
	if got := (Stripe{WebhookSecret: "a, b"}).WebhookSecrets(); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("got %q", got)
	}
}
