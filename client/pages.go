package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Campaigns iterates over campaigns, newest first, and asks for page after page
// as it gets there; Limit is that of a page. An error ends it.
func (c *Client) Campaigns(ctx context.Context, params ListCampaignsParams) iter.Seq2[CampaignSummary, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]CampaignSummary, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListCampaigns(ctx, params)
		return page.Campaigns, page.NextCursor, err
	})
}

// Purchases iterates over a user's purchases, newest first, as Campaigns does.
func (c *Client) Purchases(ctx context.Context, user UserID, params ListPurchasesParams) iter.Seq2[Purchase, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]Purchase, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListPurchases(ctx, user, params)
		return page.Purchases, page.NextCursor, err
	})
}

func pages[T any](first Cursor, load func(Cursor) ([]T, Cursor, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for cursor := first; ; {
			page, next, err := load(cursor)
			if err != nil {
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			switch next {
			case Cursor{}:
				return
			case cursor:
				yield(none, fmt.Errorf("client: %w", &malformedError{errors.New("the next page is the same page")}))
				return
			}
			cursor = next
		}
	}
}
