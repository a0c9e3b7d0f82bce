package stripe

import (
	"context"
	"errors"

	"github.com/google/uuid"
	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/payprovider"
)

// Ids of nothing. Stripe looks at the key before it looks for the object, so a call with
// one of them changes nothing, and tells whether the key may make it.
const (
	noIntent  = "pi_triprize_probe"
	noEvent   = "evt_triprize_probe"
	noMove    = "txn_triprize_probe"
	noDispute = "du_triprize_probe"
)

// CheckPermissions makes one call for each permission that we need, in Stripe's words, about
// an object that there is not: Stripe does not find it, or forbids the call. A permission to
// write is one to read, too.
func (c *Client) CheckPermissions(ctx context.Context) (map[string]bool, error) {
	has := make(map[string]bool)
	var failures []error
	for permission, probe := range map[string]func() error{
		"payment_intent_write": func() error {
			_, err := c.CancelIntent(ctx, noIntent, "probe:"+uuid.NewString())
			return err
		},
		"charge_write": func() error { // Stripe's name of charges and refunds
			_, err := c.CreateRefund(ctx, payprovider.NewRefund{Key: "probe:" + uuid.NewString(), IntentID: noIntent, Amount: 1})
			return err
		},
		"event_read": func() error {
			_, err := do(ctx, c, request{call: callFetch, what: noEvent, part: partLists}, func(ctx context.Context) (*stripego.Event, error) {
				return c.api.V1Events.Retrieve(ctx, noEvent, &stripego.EventRetrieveParams{})
			}, nil)
			return err
		},
		// The reconciliation lists the balance with what has moved it.
		"balance_transaction_source_read": func() error {
			_, err := do(ctx, c, request{call: callFetch, what: noMove, part: partLists}, func(ctx context.Context) (*stripego.BalanceTransaction, error) {
				return c.api.V1BalanceTransactions.Retrieve(ctx, noMove, &stripego.BalanceTransactionRetrieveParams{})
			}, nil)
			return err
		},
		"dispute_read": func() error {
			_, err := do(ctx, c, request{call: callFetch, what: noDispute, part: partLists}, func(ctx context.Context) (*stripego.Dispute, error) {
				return c.api.V1Disputes.Retrieve(ctx, noDispute, &stripego.DisputeRetrieveParams{})
			}, nil)
			return err
		},
	} {
		err := probe()
		e, ok := errors.AsType[*payprovider.Error](err)
		switch {
		case err == nil, ok && e.Code == string(stripego.ErrorCodeResourceMissing):
			has[permission] = true
		case ok && e.Kind == payprovider.KindForbidden:
			has[permission] = false
		default: // Stripe has not said
			failures = append(failures, err)
		}
	}
	for permission, allowed := range has {
		value := 1.0
		if allowed {
			value = 0
		}
		c.metrics.forbidden.WithLabelValues(permission).Set(value)
	}
	return has, errors.Join(failures...)
}
