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

// ListBalanceTransactions is ListEvents for what has moved the account's balance. Charges,
// refunds and disputes come with what they were made over.
func (c *Client) ListBalanceTransactions(ctx context.Context, from, to time.Time, yield func(payprovider.BalanceTransaction) error) error {
	return each(ctx, c, request{what: "balance transactions", part: partLists}, func(ctx context.Context, after *string) (page[*stripego.BalanceTransaction], error) {
		p := &stripego.BalanceTransactionListParams{CreatedRange: created(from, to), Expand: stripego.StringSlice([]string{"data.source"})}
		p.Limit, p.StartingAfter = stripego.Int64(pageSize), after
		return pageOf(c.api.V1BalanceTransactions.List(ctx, p))
	}, func(t *stripego.BalanceTransaction) (string, *callError) {
		if t.Source != nil && t.Source.Type == "" { // a bare id: nobody could tell whose it is
			return t.ID, unreadable()
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

// categories are the reporting categories of our release of Stripe's API. In any other,
// money may be ours.
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
