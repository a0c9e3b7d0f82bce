package stripe

import (
	"context"
	"strings"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// CreateRefund gives back what an intent has captured. Its status may be any: a bank may
// take days, and may refuse. Money that was given back before is KindConflict.
func (c *Client) CreateRefund(ctx context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	q := request{call: callRefund, what: n.IntentID, key: n.Key, write: true, part: partRefunds}
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
			return mismatch("%s gives back %d %s, not %d", r.ID, r.Amount, r.Currency, n.Amount)
		case r.IntentID != n.IntentID:
			return mismatch("%s is of %q, not of %s", r.ID, r.IntentID, n.IntentID)
		}
		return lacks(r.ID, r.Metadata, n.Metadata)
	})
}

// Refund fetches a refund as it is now.
func (c *Client) Refund(ctx context.Context, id string) (payprovider.Refund, error) {
	return c.refund(ctx, request{call: callFetch, what: id, part: partRefunds}, func(ctx context.Context) (*stripego.Refund, error) {
		return c.api.V1Refunds.Retrieve(ctx, id, &stripego.RefundRetrieveParams{})
	}, func(r payprovider.Refund) *callError {
		if r.ID != id {
			return mismatch("asked for %s, got %s", id, r.ID)
		}
		return nil
	})
}

// refund runs a call that answers with a refund. A refund has no livemode of its own.
func (c *Client) refund(ctx context.Context, q request, send func(ctx context.Context) (*stripego.Refund, error), check func(payprovider.Refund) *callError) (payprovider.Refund, error) {
	answer, err := do(ctx, c, q, send, func(answer *stripego.Refund) *callError {
		if answer.ID == "" || answer.Object != "refund" {
			return unreadable()
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
