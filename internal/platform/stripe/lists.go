package stripe

import (
	"context"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/payprovider"
)

const pageSize = 100 // the most that Stripe gives

// page is a part of a list, the newest first.
type page[T any] struct {
	items []T
	more  bool
}

func pageOf[T any](list *stripego.V1List[T]) (page[T], error) {
	if err := list.Err(); err != nil {
		return page[T]{}, err
	}
	return page[T]{list.Data(), list.Meta().HasMore}, nil
}

// ListIntents calls yield for every intent of the account that was created in [from, to),
// the newest first, until yield returns an error, which is returned. Times are whole
// seconds at Stripe: the span is widened to them. Others may use the account: see the
// metadata. Objects that are created meanwhile may be missing.
func (c *Client) ListIntents(ctx context.Context, from, to time.Time, yield func(payprovider.Intent) error) error {
	return each(ctx, c, request{what: "intents", part: partLists}, func(ctx context.Context, after *string) (page[*stripego.PaymentIntent], error) {
		p := &stripego.PaymentIntentListParams{CreatedRange: created(from, to)}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return pageOf(c.api.V1PaymentIntents.List(ctx, p))
	}, func(p *stripego.PaymentIntent) (string, *callError) {
		return p.ID, c.wrongIntent(p, "")
	}, func(p *stripego.PaymentIntent) error {
		return yield(c.intentOf(p))
	})
}

// ListRefunds is ListIntents for refunds.
func (c *Client) ListRefunds(ctx context.Context, from, to time.Time, yield func(payprovider.Refund) error) error {
	return c.refunds(ctx, request{what: "refunds", part: partLists}, func() *stripego.RefundListParams {
		return &stripego.RefundListParams{CreatedRange: created(from, to)}
	}, yield)
}

// RefundsOf returns all refunds of an intent, the newest first.
func (c *Client) RefundsOf(ctx context.Context, intentID string) (all []payprovider.Refund, err error) {
	err = c.refunds(ctx, request{what: intentID, part: partRefunds}, func() *stripego.RefundListParams {
		return &stripego.RefundListParams{PaymentIntent: &intentID}
	}, func(r payprovider.Refund) error {
		if r.IntentID != intentID {
			e := mismatch("asked for refunds of %s, got %s of %q", intentID, r.ID, r.IntentID)
			e.Call = string(callList)
			return &e.public
		}
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (c *Client) refunds(ctx context.Context, q request, params func() *stripego.RefundListParams, yield func(payprovider.Refund) error) error {
	return each(ctx, c, q, func(ctx context.Context, after *string) (page[*stripego.Refund], error) {
		p := params()
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return pageOf(c.api.V1Refunds.List(ctx, p))
	}, func(r *stripego.Refund) (string, *callError) {
		return r.ID, nil
	}, func(r *stripego.Refund) error {
		return yield(refundOf(r))
	})
}

// ListEvents is ListIntents for events of the given types, at most 20 (nil: all). Stripe
// forgets events after 30 days. An event that is not for us, or cannot be read, is logged
// as an error and left out: it must not keep the others from being found.
func (c *Client) ListEvents(ctx context.Context, from, to time.Time, types []string, yield func(payprovider.Event) error) error {
	return each(ctx, c, request{what: "events", part: partLists}, func(ctx context.Context, after *string) (page[*stripego.Event], error) {
		p := &stripego.EventListParams{CreatedRange: created(from, to), Types: stripego.StringSlice(types)}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return pageOf(c.api.V1Events.List(ctx, p))
	}, func(e *stripego.Event) (string, *callError) {
		return e.ID, nil
	}, func(e *stripego.Event) error {
		event, err := eventOf(rawOf(e.LastResponse))
		switch {
		case err != nil:
			c.logger.Error("an event of the list cannot be read", "event_id", e.ID, "error", err)
		case c.wrongEvent(event) == nil:
			return yield(event)
		}
		return nil
	})
}

// created is the span [from, to), widened to whole seconds.
func created(from, to time.Time) *stripego.RangeQueryParams {
	end := to.Unix()
	if to.Nanosecond() > 0 {
		end++
	}
	return &stripego.RangeQueryParams{GreaterThanOrEqual: max(0, from.Unix()), LesserThan: end}
}

// each fetches page after page and calls yield for every item. A page is a call of its
// own, and its items are in memory together.
func each[T any](ctx context.Context, c *Client, q request, fetch func(ctx context.Context, after *string) (page[T], error),
	identify func(T) (id string, wrong *callError), yield func(T) error,
) error {
	q.call = callList
	var after *string
	for {
		var last string
		p, err := do(ctx, c, q, func(ctx context.Context) (page[T], error) {
			return fetch(ctx, after)
		}, func(p page[T]) *callError {
			for _, item := range p.items {
				id, wrong := identify(item)
				switch {
				case wrong != nil:
					return wrong
				case id == "" || after != nil && id == *after:
					return unreadable() // going on would never end
				}
				last = id
			}
			if p.more && len(p.items) == 0 {
				return unreadable()
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, item := range p.items {
			if err := yield(item); err != nil {
				return err
			}
		}
		if !p.more {
			return nil
		}
		after = &last
	}
}
