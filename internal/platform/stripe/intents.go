package stripe

import (
	"context"
	"slices"
	"strings"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// CreateIntent creates an unconfirmed intent, which moves no money. Cards are captured separately; methods
// without separate capture are captured on confirmation. A method of a type that the settings do not list
// is KindRefused. KindMismatch comes with the intent.
func (c *Client) CreateIntent(ctx context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	p := &stripego.PaymentIntentCreateParams{
		Amount:   stripego.Int64(int64(n.Amount)),
		Currency: stripego.String(strings.ToLower(n.Currency)),
		Metadata: n.Metadata,
		// Never all that the account has enabled: a bank debit takes days and would always be refunded.
		PaymentMethodTypes: stripego.StringSlice(c.settings.PaymentMethodTypes()),
	}
	if slices.Contains(c.settings.PaymentMethodTypes(), "card") {
		// Only for cards: capture_method=manual for all would reject methods without separate capture.
		p.PaymentMethodOptions = &stripego.PaymentIntentCreatePaymentMethodOptionsParams{
			Card: &stripego.PaymentIntentCreatePaymentMethodOptionsCardParams{CaptureMethod: stripego.String("manual")},
		}
	}
	if n.PaymentMethod != "" {
		p.PaymentMethod = &n.PaymentMethod
	}
	if n.Description != "" {
		p.Description = &n.Description
	}
	p.IdempotencyKey = &n.Key
	return c.intent(ctx, request{call: callCreate, what: "a new intent", key: n.Key, write: true}, "", func(ctx context.Context) (*stripego.PaymentIntent, error) {
		return c.api.V1PaymentIntents.Create(ctx, p)
	}, func(i payprovider.Intent) *callError {
		if i.Amount != n.Amount || i.Currency != n.Currency {
			return mismatch("%s is of %d %s, not of %d %s", i.ID, i.Amount, i.Currency, n.Amount, n.Currency)
		}
		return checkMetadata(i.ID, i.Metadata, n.Metadata)
	})
}

// ConfirmIntent attempts the payment. A declined card is KindDeclined, and the intent can be confirmed again.
// An intent that needs authentication is RequiresAction; its ActionURL is empty if returnURL is, or if the
// method does not redirect.
func (c *Client) ConfirmIntent(ctx context.Context, id, key, paymentMethod, returnURL string) (payprovider.Intent, error) {
	return c.intent(ctx, request{call: callConfirm, what: id, key: key, write: true}, id, func(ctx context.Context) (*stripego.PaymentIntent, error) {
		p := &stripego.PaymentIntentConfirmParams{}
		if paymentMethod != "" {
			p.PaymentMethod = &paymentMethod
		}
		if returnURL != "" {
			p.ReturnURL = &returnURL
		}
		p.IdempotencyKey = &key
		return c.api.V1PaymentIntents.Confirm(ctx, id, p)
	}, nil)
}

// CaptureIntent captures the whole amount of an intent that is RequiresCapture.
func (c *Client) CaptureIntent(ctx context.Context, id, key string, amount money.Amount) (payprovider.Intent, error) {
	return c.intent(ctx, request{call: callCapture, what: id, key: key, write: true}, id, func(ctx context.Context) (*stripego.PaymentIntent, error) {
		p := &stripego.PaymentIntentCaptureParams{AmountToCapture: stripego.Int64(int64(amount))}
		p.IdempotencyKey = &key
		return c.api.V1PaymentIntents.Capture(ctx, id, p)
	}, func(i payprovider.Intent) *callError {
		if i.Status == payprovider.Succeeded && i.Received != amount {
			return mismatch("%s has captured %d %s, not %d", i.ID, i.Received, i.Currency, amount)
		}
		return nil
	})
}

// CancelIntent cancels an intent and releases the authorized money. An intent that is Succeeded or Processing
// is KindConflict.
func (c *Client) CancelIntent(ctx context.Context, id, key string) (payprovider.Intent, error) {
	return c.intent(ctx, request{call: callCancel, what: id, key: key, write: true}, id, func(ctx context.Context) (*stripego.PaymentIntent, error) {
		p := &stripego.PaymentIntentCancelParams{}
		p.IdempotencyKey = &key
		return c.api.V1PaymentIntents.Cancel(ctx, id, p)
	}, nil)
}

// Intent fetches the current state of an intent.
func (c *Client) Intent(ctx context.Context, id string) (payprovider.Intent, error) {
	return c.intent(ctx, request{call: callFetch, what: id}, id, func(ctx context.Context) (*stripego.PaymentIntent, error) {
		return c.api.V1PaymentIntents.Retrieve(ctx, id, &stripego.PaymentIntentRetrieveParams{})
	}, nil)
}

// intent runs a call that returns the intent id (empty: a new one).
func (c *Client) intent(ctx context.Context, q request, id string, send func(ctx context.Context) (*stripego.PaymentIntent, error), check func(payprovider.Intent) *callError) (payprovider.Intent, error) {
	q.part = payments
	answer, err := do(ctx, c, q, send, func(answer *stripego.PaymentIntent) *callError {
		if answer.ID == "" || answer.Object != "payment_intent" {
			return invalidAnswer()
		}
		var e *callError
		switch {
		case id != "" && answer.ID != id:
			e = mismatch("asked for %s, got %s", id, answer.ID)
		case answer.Livemode != c.settings.Live():
			e = mismatch("%s has livemode %t, the key has %t", answer.ID, answer.Livemode, c.settings.Live())
		case check != nil:
			e = check(c.withDecline(answer))
		}
		if e != nil && answer.LastResponse != nil {
			e.RequestID = answer.LastResponse.RequestID
		}
		return e
	})
	if answer == nil || answer.Object != "payment_intent" {
		return payprovider.Intent{}, err
	}
	return c.withDecline(answer), err
}

func intentOf(p *stripego.PaymentIntent) payprovider.Intent {
	i := payprovider.Intent{
		ID:       p.ID,
		Status:   payprovider.IntentStatus(p.Status),
		Amount:   money.Amount(p.Amount),
		Received: money.Amount(p.AmountReceived),
		Currency: strings.ToUpper(string(p.Currency)),
		Livemode: p.Livemode,
		Metadata: p.Metadata,
	}
	if p.PaymentMethod != nil {
		i.PaymentMethod = p.PaymentMethod.ID
	}
	if p.NextAction != nil && p.NextAction.RedirectToURL != nil {
		i.ActionURL = p.NextAction.RedirectToURL.URL
	}
	return i
}

func (c *Client) withDecline(p *stripego.PaymentIntent) payprovider.Intent {
	i := intentOf(p)
	if p.LastPaymentError != nil {
		i.Decline = c.declineOf(p.LastPaymentError, rawOf(p.LastResponse), "last_payment_error")
	}
	return i
}

// checkMetadata returns an error if an object lacks the metadata of its request.
func checkMetadata(id string, has, want map[string]string) *callError {
	for name, value := range want {
		if has[name] != value {
			return mismatch("%s has %s %q, not %q", id, name, has[name], value)
		}
	}
	return nil
}

// CreateRefund refunds the captured amount of an intent. The refund may have any status: a bank may take days
// and may reject it. A second refund is KindConflict.
func (c *Client) CreateRefund(ctx context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	q := request{call: callRefund, what: n.IntentID, key: n.Key, write: true, part: refunds}
	return c.refund(ctx, q, func(ctx context.Context) (*stripego.Refund, error) {
		p := &stripego.RefundCreateParams{
			PaymentIntent: &n.IntentID,
			Amount:        stripego.Int64(int64(n.Amount)),
			Metadata:      n.Metadata,
		}
		p.IdempotencyKey = &n.Key
		return c.api.V1Refunds.Create(ctx, p)
	}, func(r payprovider.Refund) *callError {
		switch {
		case r.Amount != n.Amount:
			return mismatch("%s refunds %d %s, not %d", r.ID, r.Amount, r.Currency, n.Amount)
		case r.IntentID != n.IntentID:
			return mismatch("%s belongs to %q, not to %s", r.ID, r.IntentID, n.IntentID)
		}
		return checkMetadata(r.ID, r.Metadata, n.Metadata)
	})
}

// Refund fetches the current state of a refund.
func (c *Client) Refund(ctx context.Context, id string) (payprovider.Refund, error) {
	return c.refund(ctx, request{call: callFetch, what: id, part: refunds}, func(ctx context.Context) (*stripego.Refund, error) {
		return c.api.V1Refunds.Retrieve(ctx, id, &stripego.RefundRetrieveParams{})
	}, func(r payprovider.Refund) *callError {
		if r.ID != id {
			return mismatch("asked for %s, got %s", id, r.ID)
		}
		return nil
	})
}

// refund runs a call that returns a refund. Refunds have no livemode.
func (c *Client) refund(ctx context.Context, q request, send func(ctx context.Context) (*stripego.Refund, error), check func(payprovider.Refund) *callError) (payprovider.Refund, error) {
	answer, err := do(ctx, c, q, send, func(answer *stripego.Refund) *callError {
		if answer.ID == "" || answer.Object != "refund" {
			return invalidAnswer()
		}
		e := check(refundOf(answer))
		if e != nil && answer.LastResponse != nil {
			e.RequestID = answer.LastResponse.RequestID
		}
		return e
	})
	if answer == nil || answer.Object != "refund" {
		return payprovider.Refund{}, err
	}
	return refundOf(answer), err
}

func refundOf(r *stripego.Refund) payprovider.Refund {
	refund := payprovider.Refund{
		ID:       r.ID,
		Status:   payprovider.RefundStatus(r.Status),
		Amount:   money.Amount(r.Amount),
		Currency: strings.ToUpper(string(r.Currency)),
		Failure:  string(r.FailureReason),
		Metadata: r.Metadata,
	}
	if r.PaymentIntent != nil {
		refund.IntentID = r.PaymentIntent.ID
	}
	return refund
}

// withoutMinorUnit are the currencies whose amounts Stripe, ISO 4217 and package money count in whole units.
// Stripe's list has two more: MGA, which has a minor unit in ISO 4217, and UGX, which Stripe counts in
// hundredths.
// Source: Stripe's documentation, "Supported currencies", zero-decimal currencies.
var withoutMinorUnit = []money.Currency{"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"}

// minimums are the least charges, where Stripe has some.
// Source: Stripe's documentation, "Supported currencies", minimum charge amounts.
var minimums = map[money.Currency]money.Amount{
	"AED": 200, "AUD": 50, "BGN": 100, "BRL": 50, "CAD": 50, "CHF": 50, "CZK": 1500, "DKK": 250, "EUR": 50, "GBP": 30, "HKD": 400, "HUF": 17500, "INR": 50,
	"JPY": 50, "MXN": 1000, "MYR": 200, "NOK": 300, "NZD": 50, "PLN": 200, "RON": 200, "SEK": 300, "SGD": 50, "THB": 1000, "USD": 50,
}

// Takes reports whether cards can pay in a currency, and the least charge; 0: it is not known. They can only if
// Stripe counts its amounts as we do. Otherwise amounts would be wrong by a factor, and no reconciliation would
// notice. Currencies with three decimals are not accepted, because Stripe accepts only multiples of ten.
func Takes(c money.Currency) (minimum money.Amount, ok bool) {
	switch c.Digits() {
	case 0:
		ok = slices.Contains(withoutMinorUnit, c)
	case 2:
		ok = c != "MGA"
	}
	return minimums[c], ok
}
