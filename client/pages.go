package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Campaigns iterates over campaigns, newest first, and reads the next page when it
// needs it. params.Limit is the size of a page. An error ends the iteration.
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

// CampaignPurchases iterates over the purchases of a campaign, newest first, as Campaigns
// does. For a table of all of them, see PurchasesCSV.
func (c *Client) CampaignPurchases(ctx context.Context, campaign CampaignID, params ListCampaignPurchasesParams) iter.Seq2[Purchase, error] {
	return pages(params.Cursor, func(cursor ListCursor) ([]Purchase, ListCursor, error) {
		params.Cursor = cursor
		page, err := c.ListCampaignPurchases(ctx, campaign, params)
		return page.Purchases, page.NextCursor, err
	})
}

// PurchasesOf iterates over the purchases that have a reference, newest first, as Campaigns
// does.
func (c *Client) PurchasesOf(ctx context.Context, params FindPurchasesParams) iter.Seq2[Purchase, error] {
	return pages(params.Cursor, func(cursor ListCursor) ([]Purchase, ListCursor, error) {
		params.Cursor = cursor
		page, err := c.FindPurchases(ctx, params)
		return page.Purchases, page.NextCursor, err
	})
}

// Jobs iterates over accepted requests, newest first, as Campaigns does.
func (c *Client) Jobs(ctx context.Context, params ListJobsParams) iter.Seq2[Job, error] {
	return pages(params.Cursor, func(cursor ListCursor) ([]Job, ListCursor, error) {
		params.Cursor = cursor
		page, err := c.ListJobs(ctx, params)
		return page.Jobs, page.NextCursor, err
	})
}

// Holds iterates over holds, newest first, as Campaigns does.
func (c *Client) Holds(ctx context.Context, params ListHoldsParams) iter.Seq2[Hold, error] {
	return pages(params.Cursor, func(cursor ListCursor) ([]Hold, ListCursor, error) {
		params.Cursor = cursor
		page, err := c.ListHolds(ctx, params)
		return page.Holds, page.NextCursor, err
	})
}

// UserHolds iterates over a user's holds, newest first, as Campaigns does.
func (c *Client) UserHolds(ctx context.Context, user UserID, params ListUserHoldsParams) iter.Seq2[Hold, error] {
	return pages(params.Cursor, func(cursor ListCursor) ([]Hold, ListCursor, error) {
		params.Cursor = cursor
		page, err := c.ListUserHolds(ctx, user, params)
		return page.Holds, page.NextCursor, err
	})
}

// Wallets iterates over the wallets of an owner, as Campaigns does.
func (c *Client) Wallets(ctx context.Context, params ListWalletsParams) iter.Seq2[Wallet, error] {
	return pages(params.Cursor, func(cursor Currency) ([]Wallet, Currency, error) {
		params.Cursor = cursor
		page, err := c.ListWallets(ctx, params)
		return page.Wallets, page.NextCursor, err
	})
}

// Refunds iterates over the refunds of a campaign, the oldest first, as Campaigns does.
func (c *Client) Refunds(ctx context.Context, campaign CampaignID, params ListRefundsParams) iter.Seq2[Refund, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]Refund, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListRefunds(ctx, campaign, params)
		return page.Refunds, page.NextCursor, err
	})
}

// WaitingRefunds iterates over the refunds of all campaigns that wait for people, as
// Campaigns does.
func (c *Client) WaitingRefunds(ctx context.Context, params ListWaitingRefundsParams) iter.Seq2[Refund, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]Refund, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListWaitingRefunds(ctx, params)
		return page.Refunds, page.NextCursor, err
	})
}

// Payments iterates over the payments that wait, as Campaigns does.
func (c *Client) Payments(ctx context.Context, params ListPaymentsParams) iter.Seq2[CardPayment, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]CardPayment, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListPayments(ctx, params)
		return page.Payments, page.NextCursor, err
	})
}

// WalletEvents iterates over a wallet's history, newest first or, with
// FromVersion, from that version upward, as Campaigns does.
func (c *Client) WalletEvents(ctx context.Context, wallet WalletID, params ListWalletEventsParams) iter.Seq2[WalletEvent, error] {
	return pages(params.Cursor, func(cursor int64) ([]WalletEvent, int64, error) {
		params.Cursor = cursor
		page, err := c.ListWalletEvents(ctx, wallet, params)
		return page.Events, page.NextCursor, err
	})
}

func pages[T any, C comparable](first C, load func(C) ([]T, C, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var last C
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
			case last:
				return
			case cursor:
				yield(none, fmt.Errorf("client: %w", &malformedError{errors.New("the next page is the same page")}))
				return
			}
			cursor = next
		}
	}
}

// WebhookEndpoints iterates over the webhook endpoints of the client, as Campaigns does.
func (c *Client) WebhookEndpoints(ctx context.Context, params ListWebhookEndpointsParams) iter.Seq2[WebhookEndpoint, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]WebhookEndpoint, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListWebhookEndpoints(ctx, params)
		return page.Endpoints, page.NextCursor, err
	})
}

// WebhookDeliveries iterates over the deliveries of an endpoint, newest first, as Campaigns
// does.
func (c *Client) WebhookDeliveries(ctx context.Context, endpoint EndpointID, params ListWebhookDeliveriesParams) iter.Seq2[WebhookDelivery, error] {
	return pages(params.Cursor, func(cursor Cursor) ([]WebhookDelivery, Cursor, error) {
		params.Cursor = cursor
		page, err := c.ListWebhookDeliveries(ctx, endpoint, params)
		return page.Deliveries, page.NextCursor, err
	})
}
