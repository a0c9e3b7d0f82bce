package httpapi

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"triprize/internal/books"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
)

func (s *server) ListMonths(ctx context.Context, _ operations.ListMonthsRequestObject) (operations.Answer, error) {
	months, err := books.Months(ctx, s.db)
	return operations.ListMonths200(contract.MonthList{Months: response.Documents(months, monthJSON)}, err)
}

func (s *server) GetMonth(ctx context.Context, r operations.GetMonthRequestObject) (operations.Answer, error) {
	m, err := books.GetMonth(ctx, s.db, r.Month)
	if fault.CodeOf(err) == fault.NotFound {
		var release func()
		if release, err = s.exports.enter(call.Of(ctx).Caller, exportsOfClient); err != nil {
			return nil, err
		}
		defer release()
		m, err = books.Preview(ctx, s.db, r.Month, response.ValueOf(r.Params.Zone), s.settings.Payments.Stripe.Enabled(), books.RulesOf(s.settings.Books))
	}
	return operations.GetMonth200(monthJSON(m), err)
}

func (s *server) CloseMonth(ctx context.Context, r operations.CloseMonthRequestObject) (operations.Answer, error) {
	closing := books.Closing{Month: r.Month, Zone: r.Body.Zone, WithOpen: r.Body.WithOpen, WithCards: s.settings.Payments.Stripe.Enabled(),
		Rules: books.RulesOf(s.settings.Books), By: call.Of(ctx).Signature()}
	done, err := job.Once(ctx, s.db, s.command(ctx, job.KindMonthClose), func(tx pgx.Tx) (any, error) {
		m, err := closing.Close(ctx, tx)
		return monthJSON(m), err
	})
	return s.commandDone(ctx, done, err)
}

// monthJSON is a month. One that is being closed has no sums yet.
func monthJSON(m books.Month) contract.BookMonth {
	d := contract.BookMonth{Month: m.Name, State: contract.BookMonthStateClosed, StartsAt: m.StartsAt, EndsAt: m.EndsAt, Zone: m.Zone, EarnedAt: contract.BookMonthEarnedAt(m.EarnedAt),
		ClosedAt: m.ClosedAt, Entries: m.Entries, Open: response.Documents(m.Open, func(o books.OpenItem) contract.OpenItem {
			return contract.OpenItem{Kind: contract.OpenItemKind(o.Kind), ID: o.ID, State: o.State, Amount: int64(o.Amount), Currency: o.Currency}
		})}
	switch {
	case m.BeganAt.IsZero():
		d.State = contract.BookMonthStateOpen
	case m.ClosedAt == nil:
		d.State, d.DoneUntil = contract.BookMonthStateClosing, &m.DoneUntil
	}
	if m.ClosedBy != "" {
		d.ClosedBy = &m.ClosedBy
	}
	if m.Hash != nil {
		hash := hex.EncodeToString(m.Hash)
		d.Hash = &hash
	}
	if m.Statement != nil { // the members have the same names
		text, _ := json.Marshal(m.Statement)
		_ = json.Unmarshal(text, &d.Statement)
	}
	return d
}
