package stripe

import (
	"context"
	"slices"
	"strings"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// CreateIntent creates an intent that is not confirmed: it moves no money. A card waits
// for its capture; a method that cannot wait is captured when it is confirmed. A method of
// a type that the settings do not name is KindRefused. With KindMismatch the intent is
// returned too.
func (c *Client) CreateIntent(ctx context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	q := request{call: callCreate, what: "a new intent", key: n.Key, write: true}
	return c.intent(ctx, q, "", func(ctx context.Context) (*stripego.PaymentIntent, error) {
		return c.api.V1PaymentIntents.Create(ctx, newIntentParams(n, c.settings.PaymentMethodTypes()))
	}, func(i payprovider.Intent) *callError {
		return differs(i, n)
	})
}

// card is the type of payment methods whose money can be held until it is captured.
const card = "card"

func newIntentParams(n payprovider.NewIntent, types []string) *stripego.PaymentIntentCreateParams {
	p := &stripego.PaymentIntentCreateParams{
		Amount:   stripego.Int64(int64(n.Amount)),
		Currency: stripego.String(strings.ToLower(n.Currency)),
		Metadata: n.Metadata,
		// Never all that the account has enabled: a bank debit takes days, and its money
		// would always go back.
		PaymentMethodTypes: stripego.StringSlice(types),
	}
	if slices.Contains(types, card) {
		// For cards only: with capture_method=manual for all, a method that cannot wait
		// would be refused.
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
	return p
}

// ConfirmIntent tries to pay. A declined card is KindDeclined; the intent can be
// confirmed again then. An intent that must be authenticated is RequiresAction; its
// ActionURL is empty if returnURL is, or if the method has another way than a redirect.
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

// CaptureIntent takes the whole amount of an intent that is RequiresCapture.
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

// CancelIntent ends an intent for ever, if it has not succeeded and is not Processing;
// else it is KindConflict. Money reserved on the card is released.
func (c *Client) CancelIntent(ctx context.Context, id, key string) (payprovider.Intent, error) {
	return c.intent(ctx, request{call: callCancel, what: id, key: key, write: true}, id, func(ctx context.Context) (*stripego.PaymentIntent, error) {
		p := &stripego.PaymentIntentCancelParams{}
		p.IdempotencyKey = &key
		return c.api.V1PaymentIntents.Cancel(ctx, id, p)
	}, nil)
}

// Intent fetches an intent as it is now.
func (c *Client) Intent(ctx context.Context, id string) (payprovider.Intent, error) {
	return c.intent(ctx, request{call: callFetch, what: id}, id, func(ctx context.Context) (*stripego.PaymentIntent, error) {
		return c.api.V1PaymentIntents.Retrieve(ctx, id, &stripego.PaymentIntentRetrieveParams{})
	}, nil)
}

// intent runs a call that answers with the intent id (empty: a new one).
func (c *Client) intent(ctx context.Context, q request, id string, send func(ctx context.Context) (*stripego.PaymentIntent, error), check func(payprovider.Intent) *callError) (payprovider.Intent, error) {
	answer, err := do(ctx, c, q, send, func(answer *stripego.PaymentIntent) *callError {
		if answer.ID == "" || answer.Object != "payment_intent" {
			return unreadable()
		}
		e := c.wrongIntent(answer, id)
		if e == nil && check != nil {
			e = check(c.intentOf(answer))
		}
		if e != nil && answer.LastResponse != nil {
			e.RequestID = answer.LastResponse.RequestID
		}
		return e
	})
	if answer == nil || answer.Object != "payment_intent" {
		return payprovider.Intent{}, err
	}
	return c.intentOf(answer), err
}

// wrongIntent compares what must be so for every intent.
func (c *Client) wrongIntent(answer *stripego.PaymentIntent, id string) *callError {
	switch {
	case id != "" && answer.ID != id:
		return mismatch("asked for %s, got %s", id, answer.ID)
	case answer.Livemode != c.settings.Live():
		return mismatch("%s has livemode %t, the key has %t", answer.ID, answer.Livemode, c.settings.Live())
	}
	return nil
}

func (c *Client) intentOf(p *stripego.PaymentIntent) payprovider.Intent {
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
	if p.LastPaymentError != nil {
		i.Decline = c.declineOf(p.LastPaymentError, rawOf(p.LastResponse), "last_payment_error")
	}
	return i
}

// differs tells an intent that is not as it was asked for.
func differs(i payprovider.Intent, n payprovider.NewIntent) *callError {
	if i.Amount != n.Amount || i.Currency != n.Currency {
		return mismatch("%s is of %d %s, not of %d %s", i.ID, i.Amount, i.Currency, n.Amount, n.Currency)
	}
	return lacks(i.ID, i.Metadata, n.Metadata)
}

// lacks tells an object that has not the metadata that it was made with.
func lacks(id string, has, want map[string]string) *callError {
	for name, value := range want {
		if has[name] != value {
			return mismatch("%s has %s %q, not %q", id, name, has[name], value)
		}
	}
	return nil
}
