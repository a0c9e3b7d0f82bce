package books

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// Total is the sum of the lines of a kind of document, an account and a method.
type Total struct {
	Kind     string  `json:"document_kind"`
	Account  Account `json:"account"`
	Method   string  `json:"method"`
	Currency string  `json:"currency"`
	Debit    int64   `json:"debit"` // minor units
	Credit   int64   `json:"credit"`
}

// Balance is the debit balance of an account: a liability is negative.
type Balance struct {
	Account  Account `json:"account"`
	Currency string  `json:"currency"`
	Opening  int64   `json:"opening"` // minor units
	Debit    int64   `json:"debit"`
	Credit   int64   `json:"credit"`
	Closing  int64   `json:"closing"` // opening + debit - credit
}

// Method is what was sold in a way of paying: sold = kept + given back + disputed. What is given back or disputed may be of
// earlier sales.
type Method struct {
	Method    string `json:"method"`
	Currency  string `json:"currency"`
	Sold      int64  `json:"sold"` // minor units
	GivenBack int64  `json:"given_back"`
	Disputed  int64  `json:"disputed"`
	Kept      int64  `json:"kept"`
}

// Provider is the provider's balance in a currency: opening + activity + fees = payouts + closing. Fees are negative.
type Provider struct {
	Currency string `json:"currency"`
	Opening  int64  `json:"opening"` // minor units
	Activity int64  `json:"activity"`
	Fees     int64  `json:"fees"`
	Payouts  int64  `json:"payouts"`
	Closing  int64  `json:"closing"`
	Reported Report `json:"reported"`
}

// Report is the same in the provider's own transactions, by its clock. What the two record on different sides of
// midnight differs here, and is the same later.
type Report struct {
	Opening  int64 `json:"opening"`
	Activity int64 `json:"activity"`
	Fees     int64 `json:"fees"`
	Payouts  int64 `json:"payouts"`
	Closing  int64 `json:"closing"`
}

// Statement is the sums of a month.
type Statement struct {
	Totals   []Total    `json:"totals"`
	Methods  []Method   `json:"methods"`
	Balances []Balance  `json:"balances"`
	Provider []Provider `json:"provider"`
}

// closing are the balances with which the next month opens.
func (s *Statement) closing() []Balance {
	if s == nil {
		return nil
	}
	next := make([]Balance, len(s.Balances))
	for i, b := range s.Balances {
		next[i] = Balance{Account: b.Account, Currency: b.Currency, Opening: b.Closing, Closing: b.Closing}
	}
	return next
}

// book is the accumulation of lines: totals of a month, balances at its start.
type book struct {
	totals  map[Total]*Total // by a Total without sums
	opening map[Balance]int64
}

func newBook(totals []Total, opening []Balance) *book {
	b := &book{make(map[Total]*Total), make(map[Balance]int64)}
	for _, t := range totals {
		b.totals[Total{Kind: t.Kind, Account: t.Account, Method: t.Method, Currency: t.Currency}] = &t
	}
	for _, o := range opening {
		b.opening[Balance{Account: o.Account, Currency: o.Currency}] = o.Closing
	}
	return b
}

func (b *book) add(l Line) {
	key := Total{Kind: l.DocumentKind, Account: l.Account, Method: l.Method, Currency: l.Currency}
	t := b.totals[key]
	if t == nil {
		t = &key
		b.totals[Total{Kind: l.DocumentKind, Account: l.Account, Method: l.Method, Currency: l.Currency}] = t
	}
	t.Debit += l.DebitMinor
	t.Credit += l.CreditMinor
}

func (b *book) addBefore(l Line) {
	b.opening[Balance{Account: l.Account, Currency: l.Currency}] += l.amount()
}

func (b *book) sums() []Total {
	all := make([]Total, 0, len(b.totals))
	for _, t := range b.totals {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(x, y Total) int {
		return cmp.Or(cmp.Compare(x.Currency, y.Currency), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Account, y.Account), cmp.Compare(x.Method, y.Method))
	})
	return all
}

func (b *book) openings() []Balance {
	all := make([]Balance, 0, len(b.opening))
	for key, amount := range b.opening {
		key.Opening, key.Closing = amount, amount
		all = append(all, key)
	}
	return sorted(all)
}

func sorted(all []Balance) []Balance {
	slices.SortFunc(all, func(x, y Balance) int {
		return cmp.Or(cmp.Compare(x.Currency, y.Currency), cmp.Compare(slices.Index(config.Accounts, string(x.Account)), slices.Index(config.Accounts, string(y.Account))))
	})
	return all
}

// statement sums up a month. reported are the provider's sums, by currency.
func (b *book) statement(reported map[string]Report) *Statement {
	s := &Statement{Totals: b.sums(), Methods: []Method{}, Balances: b.openings(), Provider: []Provider{}}
	methods, providers := make(map[[2]string]*Method), make(map[string]*Provider)
	provider := func(currency string) *Provider {
		if providers[currency] == nil {
			providers[currency] = &Provider{Currency: currency, Opening: b.opening[Balance{Account: Receivable, Currency: currency}], Reported: reported[currency]}
		}
		return providers[currency]
	}
	for _, o := range s.Balances {
		if o.Account == Receivable {
			provider(o.Currency)
		}
	}
	for currency := range reported {
		provider(currency)
	}
	for _, t := range s.Totals {
		i := slices.IndexFunc(s.Balances, func(o Balance) bool { return o.Account == t.Account && o.Currency == t.Currency })
		if i < 0 {
			i = len(s.Balances)
			s.Balances = append(s.Balances, Balance{Account: t.Account, Currency: t.Currency})
		}
		o := &s.Balances[i]
		o.Debit, o.Credit, o.Closing = o.Debit+t.Debit, o.Credit+t.Credit, o.Closing+t.Debit-t.Credit
		switch t.Account {
		case Unearned, Sales, Disputes:
			if t.Kind == campaigns {
				break
			}
			m := methods[[2]string{t.Currency, t.Method}]
			if m == nil {
				m = &Method{Method: t.Method, Currency: t.Currency}
				methods[[2]string{t.Currency, t.Method}] = m
			}
			switch {
			case t.Account == Disputes:
				m.Disputed += t.Debit - t.Credit
			case t.Kind == "refund":
				m.GivenBack += t.Debit - t.Credit
			default:
				m.Sold += t.Credit - t.Debit
			}
			m.Kept = m.Sold - m.GivenBack - m.Disputed
		case Receivable:
			provider(t.Currency).Activity += t.Debit - t.Credit // with fees and payouts, which are subtracted below
		case Fees:
			p := provider(t.Currency)
			p.Fees -= t.Debit - t.Credit
			p.Activity += t.Debit - t.Credit
		case Bank:
			p := provider(t.Currency)
			p.Payouts += t.Debit - t.Credit
			p.Activity += t.Debit - t.Credit
		}
	}
	s.Balances = sorted(s.Balances)
	for _, key := range slices.SortedFunc(maps.Keys(methods), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) }) {
		s.Methods = append(s.Methods, *methods[key])
	}
	for _, currency := range slices.Sorted(maps.Keys(providers)) {
		p := providers[currency]
		p.Closing = p.Opening + p.Activity + p.Fees - p.Payouts
		s.Provider = append(s.Provider, *p)
	}
	return s
}

// reportOf sums up the provider's transactions of a period, by currency, day by day. What was before since is in the report of the last
// closed month, if there is one: transactions are deleted after their retention.
func reportOf(ctx context.Context, db postgres.DB, p Period, since time.Time, before []Provider) (map[string]Report, error) {
	type sums struct {
		Currency                         string
		Opening, Activity, Fees, Payouts int64
	}
	report := make(map[string]Report)
	for _, b := range before {
		report[b.Currency] = Report{Opening: b.Reported.Closing, Closing: b.Reported.Closing}
	}
	var first, last *time.Time
	if err := db.QueryRow(ctx, `SELECT min(day), max(day) + 1 FROM balance_transactions`).Scan(&first, &last); err != nil || first == nil {
		return report, fault.At(err, "books.reportOf")
	}
	if len(before) == 0 || since.Before(*first) {
		since = *first
	}
	for _, day := range utcDays(Period{since, *last}) {
		rows, err := Page(ctx, db, pgx.RowToStructByPos[sums], `
			SELECT currency, coalesce(sum(net) FILTER (WHERE created_at < $2), 0)::bigint,
			       coalesce(sum(amount) FILTER (WHERE created_at >= $2 AND NOT is_payout AND NOT is_fee), 0)::bigint,
			       coalesce(sum(CASE WHEN is_fee THEN amount ELSE 0 END - fee) FILTER (WHERE created_at >= $2), 0)::bigint,
			       coalesce(-sum(amount) FILTER (WHERE created_at >= $2 AND is_payout), 0)::bigint
			FROM (SELECT *, reporting_category IN ('payout', 'payout_reversal') AS is_payout, reporting_category IN ('fee', 'network_cost', 'tax') AS is_fee
			      FROM balance_transactions WHERE day = $1 AND created_at >= $4 AND created_at < $3) t
			GROUP BY currency`, day, p.From, p.To, since)
		if err != nil {
			return nil, fault.At(err, "books.reportOf")
		}
		for _, r := range rows {
			sum := report[r.Currency]
			sum.Opening += r.Opening
			sum.Activity += r.Activity
			sum.Fees += r.Fees
			sum.Payouts += r.Payouts
			sum.Closing += r.Opening + r.Activity + r.Fees - r.Payouts
			report[r.Currency] = sum
		}
	}
	return report, nil
}
