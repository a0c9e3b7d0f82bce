package stripe

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

const pageSize = 100 // Stripe's maximum

// RefundsOf returns all refunds of an intent, newest first.
func (c *Client) RefundsOf(ctx context.Context, intentID string) (all []payprovider.Refund, err error) {
	err = each(ctx, c, request{what: intentID, part: refunds}, func(ctx context.Context, after *string) *stripego.V1List[*stripego.Refund] {
		p := &stripego.RefundListParams{PaymentIntent: &intentID}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return c.api.V1Refunds.List(ctx, p)
	}, func(r *stripego.Refund) (string, *callError) {
		if of := refundOf(r).IntentID; of != intentID {
			return r.ID, mismatch("asked for refunds of %s, got %s of %q", intentID, r.ID, of)
		}
		return r.ID, nil
	}, func(r *stripego.Refund) error {
		all = append(all, refundOf(r))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// DisputesOf returns all disputes of an intent, newest first.
func (c *Client) DisputesOf(ctx context.Context, intentID string) (all []payprovider.Dispute, err error) {
	err = each(ctx, c, request{what: intentID, part: refunds}, func(ctx context.Context, after *string) *stripego.V1List[*stripego.Dispute] {
		p := &stripego.DisputeListParams{PaymentIntent: &intentID}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return c.api.V1Disputes.List(ctx, p)
	}, func(d *stripego.Dispute) (string, *callError) {
		if d.PaymentIntent == nil || d.PaymentIntent.ID != intentID {
			return d.ID, mismatch("asked for disputes of %s, got %s of another", intentID, d.ID)
		}
		return d.ID, nil
	}, func(d *stripego.Dispute) error {
		all = append(all, disputeOf(d))
		return nil
	})
	return all, err
}

// disputeOf says what became of the money. Stripe does not mark all charges as refundable whose dispute is won; for
// those the answer to the refund decides. A dispute that was prevented has either taken the money (a resolution by the
// rules of the card network) or none (a block).
func disputeOf(d *stripego.Dispute) payprovider.Dispute {
	dispute := payprovider.Dispute{ID: d.ID, Status: string(d.Status), Reason: string(d.Reason),
		Disputed: payprovider.Disputed{Amount: money.Amount(d.Amount), Currency: strings.ToUpper(string(d.Currency))}}
	var net int64
	for _, t := range d.BalanceTransactions { // an inquiry has none; their fee is in the currency of the balance
		if net += t.Amount; t.Fee != 0 {
			dispute.Fee, dispute.FeeCurrency = dispute.Fee+money.Amount(t.Fee), strings.ToUpper(string(t.Currency))
		}
	}
	switch d.Status {
	case stripego.DisputeStatusWarningNeedsResponse, stripego.DisputeStatusWarningUnderReview, stripego.DisputeStatusNeedsResponse, stripego.DisputeStatusUnderReview:
		dispute.Refundable = d.IsChargeRefundable
	case stripego.DisputeStatusWon, stripego.DisputeStatusWarningClosed:
		dispute.Refundable = true
	case stripego.DisputeStatusLost:
		dispute.Lost = true
	case stripego.DisputeStatusPrevented:
		dispute.Lost = net < 0
		dispute.Refundable = !dispute.Lost && d.IsChargeRefundable
		dispute.Unclear = !dispute.Lost && !dispute.Refundable
	default:
		dispute.Unclear = true
	}
	return dispute
}

// ListEvents calls yield for every event of the given types (at most 20; nil: all) that was created in
// [from, to), newest first, until yield returns an error, which it returns. Stripe's times are whole seconds,
// so the range is widened to them. Events that are created meanwhile may be missing. Stripe deletes events
// after 30 days. An event that is invalid or not for us is logged as an error and skipped.
func (c *Client) ListEvents(ctx context.Context, from, to time.Time, types []string, yield func(payprovider.Event) error) error {
	return each(ctx, c, request{what: "events", part: lists}, func(ctx context.Context, after *string) *stripego.V1List[*stripego.Event] {
		p := &stripego.EventListParams{CreatedRange: created(from, to), Types: stripego.StringSlice(types)}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return c.api.V1Events.List(ctx, p)
	}, func(e *stripego.Event) (string, *callError) {
		return e.ID, nil
	}, func(e *stripego.Event) error {
		event, err := eventOf(rawOf(e.LastResponse))
		switch {
		case err != nil:
			c.logger.Error("an event of the list is invalid", "event_id", e.ID, "error", err)
		case c.wrongEvent(event) == nil:
			return yield(event)
		}
		return nil
	})
}

// created returns the range [from, to), widened to whole seconds.
func created(from, to time.Time) *stripego.RangeQueryParams {
	end := to.Unix()
	if to.Nanosecond() > 0 {
		end++
	}
	return &stripego.RangeQueryParams{GreaterThanOrEqual: max(0, from.Unix()), LesserThan: end}
}

// each fetches one page after the other and calls yield for every item. Each page is a separate call.
func each[T any](ctx context.Context, c *Client, q request, fetch func(ctx context.Context, after *string) *stripego.V1List[T],
	identify func(T) (id string, wrong *callError), yield func(T) error,
) error {
	q.call = callList
	var after *string
	for {
		var last string
		page, err := do(ctx, c, q, func(ctx context.Context) (*stripego.V1List[T], error) {
			page := fetch(ctx, after)
			return page, page.Err()
		}, func(page *stripego.V1List[T]) *callError {
			for _, item := range page.Data() {
				id, wrong := identify(item)
				switch {
				case wrong != nil:
					return wrong
				case id == "" || after != nil && id == *after:
					return invalidAnswer() // continuing would never end
				}
				last = id
			}
			if page.Meta().HasMore && len(page.Data()) == 0 {
				return invalidAnswer()
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, item := range page.Data() {
			if err := yield(item); err != nil {
				return err
			}
		}
		if !page.Meta().HasMore {
			return nil
		}
		after = &last
	}
}

// ListBalanceTransactions is ListEvents for balance transactions. Charges, refunds and disputes come with
// their sources.
func (c *Client) ListBalanceTransactions(ctx context.Context, from, to time.Time, yield func(payprovider.BalanceTransaction) error) error {
	return each(ctx, c, request{what: "balance transactions", part: lists}, func(ctx context.Context, after *string) *stripego.V1List[*stripego.BalanceTransaction] {
		p := &stripego.BalanceTransactionListParams{CreatedRange: created(from, to), Expand: stripego.StringSlice([]string{"data.source"})}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return c.api.V1BalanceTransactions.List(ctx, p)
	}, func(t *stripego.BalanceTransaction) (string, *callError) {
		if t.Source != nil && t.Source.Type == "" { // not expanded: its owner is unknown
			return t.ID, invalidAnswer()
		}
		return t.ID, nil
	}, func(t *stripego.BalanceTransaction) error {
		return yield(balanceTransactionOf(t))
	})
}

func balanceTransactionOf(t *stripego.BalanceTransaction) payprovider.BalanceTransaction {
	b := payprovider.BalanceTransaction{
		ID:          t.ID,
		Type:        string(t.Type),
		Category:    string(t.ReportingCategory),
		Known:       slices.Contains(categories, t.ReportingCategory),
		Amount:      money.Amount(t.Amount),
		Currency:    strings.ToUpper(string(t.Currency)),
		Fee:         money.Amount(t.Fee),
		Net:         money.Amount(t.Net),
		CreatedAt:   time.Unix(t.Created, 0).UTC(),
		AvailableOn: time.Unix(t.AvailableOn, 0).UTC(),
	}
	if t.ExchangeRate != 0 {
		rate := strconv.FormatFloat(t.ExchangeRate, 'f', -1, 64)
		b.ExchangeRate = &rate
	}
	if t.Source != nil {
		b.Source = sourceOf(t.Source)
	}
	return b
}

func sourceOf(s *stripego.BalanceTransactionSource) payprovider.Source {
	source := payprovider.Source{ID: s.ID}
	var intent *stripego.PaymentIntent
	switch {
	case s.Charge != nil:
		intent = s.Charge.PaymentIntent
		source.Amount, source.Currency = money.Amount(s.Charge.AmountCaptured), string(s.Charge.Currency)
		source.Status, source.Metadata = string(s.Charge.Status), s.Charge.Metadata
	case s.Refund != nil:
		intent = s.Refund.PaymentIntent
		source.Amount, source.Currency = money.Amount(s.Refund.Amount), string(s.Refund.Currency)
		source.Status, source.Metadata = string(s.Refund.Status), s.Refund.Metadata
	case s.Dispute != nil:
		intent = s.Dispute.PaymentIntent
		source.Amount, source.Currency = money.Amount(s.Dispute.Amount), string(s.Dispute.Currency)
		source.Status, source.Metadata = string(s.Dispute.Status), s.Dispute.Metadata
	}
	if intent != nil {
		source.IntentID = intent.ID
	}
	source.Currency = strings.ToUpper(source.Currency)
	return source
}

// categories are the reporting categories of our version of Stripe's API. In any other, money may be ours.
var categories = []stripego.BalanceTransactionReportingCategory{
	stripego.BalanceTransactionReportingCategoryAdvance,
	stripego.BalanceTransactionReportingCategoryAdvanceFunding,
	stripego.BalanceTransactionReportingCategoryCharge,
	stripego.BalanceTransactionReportingCategoryChargeFailure,
	stripego.BalanceTransactionReportingCategoryConnectCollectionTransfer,
	stripego.BalanceTransactionReportingCategoryConnectReservedFunds,
	stripego.BalanceTransactionReportingCategoryDispute,
	stripego.BalanceTransactionReportingCategoryDisputeReversal,
	stripego.BalanceTransactionReportingCategoryFee,
	stripego.BalanceTransactionReportingCategoryIssuingAuthorizationHold,
	stripego.BalanceTransactionReportingCategoryIssuingAuthorizationRelease,
	stripego.BalanceTransactionReportingCategoryIssuingTransaction,
	stripego.BalanceTransactionReportingCategoryOtherAdjustment,
	stripego.BalanceTransactionReportingCategoryPartialCaptureReversal,
	stripego.BalanceTransactionReportingCategoryPayout,
	stripego.BalanceTransactionReportingCategoryPayoutReversal,
	stripego.BalanceTransactionReportingCategoryPlatformEarning,
	stripego.BalanceTransactionReportingCategoryPlatformEarningRefund,
	stripego.BalanceTransactionReportingCategoryRefund,
	stripego.BalanceTransactionReportingCategoryRefundFailure,
	stripego.BalanceTransactionReportingCategoryRiskReservedFunds,
	stripego.BalanceTransactionReportingCategoryTax,
	stripego.BalanceTransactionReportingCategoryTopup,
	stripego.BalanceTransactionReportingCategoryTopupReversal,
	stripego.BalanceTransactionReportingCategoryTransfer,
	stripego.BalanceTransactionReportingCategoryTransferReversal,
}
