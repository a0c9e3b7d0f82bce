package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/postgres"
)

// Entry is money that the books disagree about, or that is under way.
type Entry struct {
	PurchaseID string       `json:"purchase_id,omitempty"`
	IntentID   string       `json:"intent_id,omitempty"`
	RefundID   string       `json:"refund_id,omitempty"` // of the provider
	What       string       `json:"what"`
	Here       money.Amount `json:"here"`  // minor units
	There      money.Amount `json:"there"` // at the provider
	Currency   string       `json:"currency"`
}

// Totals is the money of one currency: of the intents and of the refunds that were made in
// the span.
type Totals struct {
	CapturedHere  money.Amount `json:"captured_here"`
	CapturedThere money.Amount `json:"captured_there"`
	RefundedHere  money.Amount `json:"refunded_here"`
	RefundedThere money.Amount `json:"refunded_there"`
}

// PaymentsReport is the result of a comparison. An open payment
// or refund is no difference.
type PaymentsReport struct {
	From        time.Time          `json:"from"`
	To          time.Time          `json:"to"`
	Intents     int                `json:"intents"` // of ours, at the provider
	Refunds     int                `json:"refunds"`
	Totals      map[string]*Totals `json:"totals"` // by currency
	Differences []Entry            `json:"differences"`
	UnderWay    []Entry            `json:"under_way"`
}

// MaxPaymentsSpan bounds what one comparison lists.
const MaxPaymentsSpan = 92 * 24 * time.Hour

// pageSize is how many of the provider's objects are looked up here at once.
const pageSize = 500

// purchaseKey is where an intent and a refund have their purchase in the metadata.
const purchaseKey = "purchase_id"

// comparison is the state of one run.
type comparison struct {
	db       postgres.DB
	provider payprovider.Provider
	report   *PaymentsReport
	seen     map[string]bool         // intents and refunds that were compared
	received map[string]money.Amount // by intents that were compared, at the provider
}

// verdict is what becomes of one object after a look at both books.
type verdict int

const (
	agreed verdict = iota
	differs
	underWay
)

// ComparePayments compares our payments and refunds with what the provider has made in
// [from, to), to the smallest unit, in both directions. The books change meanwhile: what
// seems to differ is looked at again, on both sides. Objects without our metadata that
// nobody here knows are somebody else's. A refund of an intent that has received nothing has
// released an authorization: it is left out.
func ComparePayments(ctx context.Context, db postgres.DB, provider payprovider.Provider, from, to time.Time) (PaymentsReport, error) {
	report := PaymentsReport{From: from.UTC(), To: to.UTC(), Totals: make(map[string]*Totals), Differences: []Entry{}, UnderWay: []Entry{}}
	c := &comparison{db: db, provider: provider, report: &report, seen: make(map[string]bool), received: make(map[string]money.Amount)}
	for _, part := range []func(context.Context, time.Time, time.Time) error{c.listedIntents, c.missingIntents, c.listedRefunds, c.missingRefunds} {
		if err := part(ctx, from, to); err != nil {
			return PaymentsReport{}, fmt.Errorf("audit.ComparePayments: %w", err)
		}
	}
	for _, list := range [][]Entry{report.Differences, report.UnderWay} {
		slices.SortStableFunc(list, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(a.PurchaseID, b.PurchaseID), cmp.Compare(a.RefundID, b.RefundID), cmp.Compare(a.IntentID, b.IntentID))
		})
	}
	return report, nil
}

func (c *comparison) totals(currency string) *Totals {
	if c.report.Totals[currency] == nil {
		c.report.Totals[currency] = &Totals{}
	}
	return c.report.Totals[currency]
}

func (c *comparison) note(v verdict, e Entry) {
	switch v {
	case differs:
		c.report.Differences = append(c.report.Differences, e)
	case underWay:
		c.report.UnderWay = append(c.report.UnderWay, e)
	}
}

// inPages collects what list yields, and gives it to do in pages.
func inPages[T any](list func(yield func(T) error) error, do func(page []T) error) error {
	page := make([]T, 0, pageSize)
	err := list(func(one T) error {
		if page = append(page, one); len(page) < pageSize {
			return nil
		}
		err := do(page)
		page = page[:0]
		return err
	})
	if err != nil || len(page) == 0 {
		return err
	}
	return do(page)
}

// gone reports whether the provider does not know an object.
func gone(err error) bool {
	e, ok := errors.AsType[*payprovider.Error](err)
	return ok && e.Kind == payprovider.KindRefused && e.Code == "resource_missing"
}
