package reconciliation

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
)

// MaxSpan bounds what CompareSpan lists.
const MaxSpan = 92 * 24 * time.Hour

// Span is what a comparison of any span has found.
type Span struct {
	From          time.Time     `json:"from"`
	To            time.Time     `json:"to"`
	Totals        []Total       `json:"totals"` // by currency
	Discrepancies []Discrepancy `json:"discrepancies"`
	UnderWay      []Discrepancy `json:"under_way"` // the books may agree when it is done
}

// CompareSpan compares [from, to) by the rules of the sweep, at once, and changes nothing:
// what is listed is in a temporary table. session is one connection. The books change
// meanwhile, so what differs is what differs twice.
func CompareSpan(ctx context.Context, session postgres.DB, provider payprovider.Provider, from, to time.Time) (Span, error) {
	s, err := compareSpan(ctx, session, provider, from, to)
	return s, fault.At(err, "reconciliation.CompareSpan")
}

func compareSpan(ctx context.Context, session postgres.DB, provider payprovider.Provider, from, to time.Time) (s Span, err error) {
	if _, err := session.Exec(ctx, `CREATE TEMPORARY TABLE compared_transactions (LIKE balance_transactions INCLUDING ALL)`); err != nil {
		return s, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, late := session.Exec(ending, `DROP TABLE IF EXISTS pg_temp.compared_transactions`); err == nil {
			err = late
		}
	}()
	type key struct {
		kind   Kind
		object string
	}
	var before map[key]bool
	for range 2 {
		s = Span{From: from.UTC(), To: to.UTC(), Discrepancies: []Discrepancy{}, UnderWay: []Discrepancy{}}
		err := payment.InSpans(ctx, from, to, provider.ListBalanceTransactions, func(_ time.Time, all []payprovider.BalanceTransaction) error {
			_, _, err := insert(ctx, session, apart, all)
			return err
		})
		if err != nil {
			return s, err
		}
		found, err := compare(ctx, session, apart, from, to, `true`)
		if err != nil {
			return s, err
		}
		seen, differ := make(map[key]bool), make(map[key]bool)
		for _, d := range found {
			k := key{d.Kind, d.ObjectID}
			if seen[k] || before != nil && !before[k] && !d.UnderWay { // two rules show it, or it has moved
				continue
			}
			seen[k] = true
			if d.UnderWay {
				s.UnderWay = append(s.UnderWay, d)
				continue
			}
			stands, err := stands(ctx, session, provider, d)
			if err != nil {
				return s, err
			}
			if stands {
				differ[k] = true
				s.Discrepancies = append(s.Discrepancies, d)
			}
		}
		if len(differ) == 0 {
			break
		}
		before = differ
	}
	named := make(map[string]bool)
	for _, d := range slices.Concat(s.Discrepancies, s.UnderWay) {
		if named[d.ObjectID] = true; d.UnderWay && d.Kind == UnknownHere && d.PurchaseID != nil { // an open refund has no id of the provider yet
			named[d.PurchaseID.String()] = true
		}
	}
	open, err := underWay(ctx, session, from, to)
	if err != nil {
		return s, err
	}
	s.UnderWay = append(s.UnderWay, slices.DeleteFunc(open, func(d Discrepancy) bool { return named[cmp.Or(d.ObjectID, d.PurchaseID.String())] })...)
	s.Totals, err = totals(ctx, session)
	return s, err
}

// stands asks the provider about what the span alone cannot show: what has no transaction
// may have one outside of the span, and what a payment that an operator has called unpaid had
// captured may have been refunded outside of it.
func stands(ctx context.Context, db postgres.DB, provider payprovider.Provider, d Discrepancy) (bool, error) {
	p, isIntent, err := payment.OfIntent(ctx, db, d.ObjectID)
	if err != nil {
		return false, err
	}
	switch {
	case d.Kind == UnknownThere && isIntent:
		there, err := provider.Intent(ctx, d.ObjectID)
		if gone(err) {
			return true, nil
		}
		return there.Received != p.Received || there.Currency != p.Currency, err
	case d.Kind == UnknownThere:
		there, err := provider.Refund(ctx, d.ObjectID)
		if gone(err) {
			return true, nil
		}
		return there.Status != payprovider.RefundSucceeded || int64(there.Amount) != *d.HereAmount || there.Currency != *d.HereCurrency, err
	case d.Kind == Differs && isIntent && p.Received == 0 && p.ResolvedAs != nil && *d.ThereCurrency == p.Currency:
		refunds, err := provider.RefundsOf(ctx, d.ObjectID)
		left := *d.ThereAmount
		for _, r := range refunds {
			if r.Status == payprovider.RefundSucceeded {
				left -= int64(r.Amount)
			}
		}
		return left != 0, err
	}
	return true, nil
}

// gone reports whether the provider does not know an object.
func gone(err error) bool {
	e, ok := errors.AsType[*payprovider.Error](err)
	return ok && e.Kind == payprovider.KindRefused && e.Code == "resource_missing"
}
