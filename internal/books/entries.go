package books

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
)

// pageSize is how many rows a statement reads.
const pageSize = 2000

// idSlack is how far the time in an id may be from that of its row; the triggers of book_facts append what is later.
const idSlack = time.Hour

// posting is a row of a source: a debit and a credit.
type posting struct {
	Document   string
	ID         int64 // of a fact; of another row 0
	At         time.Time
	Debit      Account
	Credit     Account
	Amount     int64 // minor units
	Currency   string
	CampaignID *uuid.UUID
	Method     *string
	Adjusts    *string
	EarnedAt   *time.Time // when the sales of its campaign were earned; nil: not yet
}

// facts are the postings of a kind of document in [$2, $3), after the document $5 and fact $6. The UTC days $1 are those that touch the
// span. They are read along the primary key.
const facts = `
	SELECT f.document_id, f.id, f.at, f.debit, f.credit, f.amount, f.currency, f.campaign_id, f.method, f.adjusts
	FROM unnest($1::date[]) AS d (day) CROSS JOIN LATERAL (
		SELECT * FROM book_facts b WHERE b.day = d.day AND b.kind = $4 AND (b.document_id, b.id) > ($5, $6::bigint) AND b.at >= $2 AND b.at < $3
		ORDER BY b.document_id, b.id LIMIT $7) f`

// Rows that are found by the time in their ids: between $8, which is the last one that was read, and $9.
const (
	afterID = `x.id > $8::uuid AND x.id < $9::uuid`
	sales   = `
		SELECT x.id::text COLLATE "C", 0::bigint, x.completed_at, CASE x.payment_method WHEN 'wallet' THEN 'wallet_liability' ELSE 'cash_outside' END, 'unearned', x.amount, x.currency,
		       x.campaign_id, x.payment_method, NULL::text
		FROM purchases x
		WHERE ` + afterID + ` AND x.completed_at >= $2 AND x.completed_at < $3 AND x.payment_method <> 'card' AND abs(seconds_from_id(x.id, x.completed_at)) < 3600
		ORDER BY x.id LIMIT $7`
	ledger = `
		SELECT x.id::text COLLATE "C", 0::bigint, x.created_at, CASE WHEN x.debit_wallet IS NULL THEN 'cash_outside' ELSE 'wallet_liability' END,
		       CASE WHEN x.credit_wallet IS NULL THEN 'cash_outside' ELSE 'wallet_liability' END, x.amount, x.currency, NULL::uuid, 'wallet', NULL::text
		FROM ledger_entries x
		WHERE ` + afterID + ` AND x.created_at >= $2 AND x.created_at < $3 AND x.kind IN ('credit', 'debit', 'capture') AND abs(seconds_from_id(x.id, x.created_at)) < 3600
		ORDER BY x.id LIMIT $7`
)

// campaigns is the kind of documents that are read in another way, see earned.
const campaigns = "campaign"

// kinds are the kinds of documents, in alphabetical order, each with its rows beside the facts.
var kinds = []struct{ name, rows string }{
	{"balance_transaction", ""}, {campaigns, ""}, {"dispute", ""}, {"ledger_entry", ledger}, {"payment", ""}, {"purchase", sales}, {"refund", ""},
}

// earnedSQL is when the sales of a campaign c were earned.
var earnedSQL = map[EarnedAt]string{AtResult: "c.draw_completed_at", AtSaleEnd: "c.draw_started_at"}

// entriesOf yields the entries of a day after a place, up to the first error.
func entriesOf(ctx context.Context, db postgres.DB, day Period, after place, earnedAt EarnedAt) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for _, kind := range kinds {
			from := place{Kind: kind.name}
			switch {
			case kind.name < after.Kind:
				continue
			case kind.name == after.Kind:
				from = after
			}
			all := postings(ctx, db, day, from, kind.rows, earnedAt)
			if kind.name == campaigns {
				all = earned(ctx, db, day, from, earnedAt)
			}
			for e, err := range all {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// postings yields the entries of a kind of document, page by page.
func postings(ctx context.Context, db postgres.DB, day Period, after place, rows string, earnedAt EarnedAt) iter.Seq2[entry, error] {
	kind, union := after.Kind, facts
	if rows != "" {
		union += ` UNION ALL (` + rows + `)`
	}
	sql := `SELECT x.*, ` + earnedSQL[earnedAt] + ` FROM (` + union + ` ORDER BY 1, 2 LIMIT $7) x
		LEFT JOIN LATERAL (SELECT draw_started_at, draw_completed_at FROM campaigns WHERE id = x.campaign_id OFFSET 0) c ON true ORDER BY 1, 2`
	return func(yield func(entry, error) bool) {
		for {
			failpoint.Hit("books.page", func() []string { return []string{day.From.Format(time.DateOnly) + " " + kind} })
			args := []any{utcDays(day), day.From, day.To, kind, after.Document, after.ID, pageSize}
			if rows != "" {
				first := uuidv7.FirstAt(day.From.Add(-idSlack))
				if id, err := uuid.Parse(after.Document); err == nil && uuidv7.Compare(first, id) < 0 {
					first = id
				}
				args = append(args, first, uuidv7.FirstAt(day.To.Add(idSlack)))
			}
			page, err := Page(ctx, db, pgx.RowToStructByPos[posting], sql, args...)
			if err != nil {
				yield(entry{}, fault.At(err, "books.postings(%s, %s)", day.From.Format(time.DateOnly), kind))
				return
			}
			for _, p := range page {
				if !yield(p.entry(kind), nil) {
					return
				}
				after = place{kind, p.Document, p.ID}
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

func (p posting) entry(kind string) entry {
	method := postgres.ValueOf(p.Method)
	is := func(a Account) Account {
		if a == Unearned && p.EarnedAt != nil && !p.At.Before(*p.EarnedAt) {
			return Sales
		}
		return a
	}
	return entry{place: place{kind, p.Document, p.ID}, currency: p.Currency, campaign: p.CampaignID, adjusts: postgres.ValueOf(p.Adjusts),
		sides: []side{{is(p.Debit), p.Amount, method}, {is(p.Credit), -p.Amount, method}}}
}

// utcDays are the days of UTC that touch a span.
func utcDays(p Period) (days []time.Time) {
	for day := p.From.UTC().Truncate(24 * time.Hour); day.Before(p.To); day = day.AddDate(0, 0, 1) {
		days = append(days, day)
	}
	return days
}

// earned yields the entries of the campaigns whose sales were earned on a day: what is unearned of each method by then.
func earned(ctx context.Context, db postgres.DB, day Period, after place, earnedAt EarnedAt) iter.Seq2[entry, error] {
	type found struct {
		ID       uuid.UUID
		At       time.Time
		Currency string
	}
	at := earnedSQL[earnedAt]
	return func(yield func(entry, error) bool) {
		last, _ := uuid.Parse(after.Document) // of none it is zero
		for {
			page, err := Page(ctx, db, pgx.RowToStructByPos[found], `
				SELECT c.id, `+at+`, c.currency FROM campaigns c WHERE c.id > $3 AND `+at+` >= $1 AND `+at+` < $2 ORDER BY c.id LIMIT $4`, day.From, day.To, last, pageSize)
			for _, c := range page {
				last = c.ID
				var sides []side
				if sides, err = unearned(ctx, db, c.ID, c.At); err != nil {
					break
				}
				if len(sides) > 0 && !yield(entry{place: place{campaigns, c.ID.String(), 0}, currency: c.Currency, campaign: &c.ID, sides: sides}, nil) {
					return
				}
			}
			if err != nil {
				yield(entry{}, fault.At(err, "books.earned(%s)", day.From.Format(time.DateOnly)))
				return
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

// unearned returns the sides of an entry that earns what is unearned of a campaign before a moment, by method. What is sold
// late, by its fact too, counts as a row.
func unearned(ctx context.Context, db postgres.DB, campaignID uuid.UUID, before time.Time) ([]side, error) {
	type part struct {
		Last   uuid.UUID
		Method string
		Amount int64
	}
	totals := make(map[string]int64)
	for last := uuid.Nil; ; {
		page, err := Page(ctx, db, pgx.RowToStructByPos[part], `
			SELECT p.id, p.payment_method, CASE WHEN p.payment_method <> 'card' AND p.completed_at < $2 THEN p.amount ELSE 0 END + coalesce((
			       SELECT sum(CASE 'unearned' WHEN f.credit THEN f.amount WHEN f.debit THEN -f.amount ELSE 0 END) FROM book_facts f
			       WHERE f.purchase_id = p.id AND f.kind <> 'purchase' AND f.at < $2), 0)::bigint
			FROM (SELECT * FROM purchases WHERE campaign_id = $1 AND id > $3 ORDER BY id LIMIT $4) p ORDER BY p.id`, campaignID, before, last, pageSize)
		if err != nil {
			return nil, err
		}
		for _, p := range page {
			totals[p.Method] += p.Amount
			last = p.Last
		}
		if len(page) < pageSize {
			break
		}
	}
	var sides []side
	for method, amount := range totals {
		if amount != 0 {
			sides = append(sides, side{Unearned, amount, method}, side{Sales, -amount, method})
		}
	}
	slices.SortFunc(sides, func(a, b side) int {
		if byMethod := strings.Compare(a.method, b.method); byMethod != 0 {
			return byMethod
		}
		return strings.Compare(string(b.account), string(a.account)) // unearned before sales
	})
	return sides, nil
}

// clip returns the part of a period that can have entries: from the first row on, until now.
func clip(ctx context.Context, db postgres.DB, p Period) (Period, error) {
	var first *time.Time
	var last time.Time
	err := db.QueryRow(ctx, `
		SELECT least((SELECT min(created_at) FROM campaigns), (SELECT created_at FROM wallets ORDER BY id LIMIT 1), (SELECT min(day)::timestamptz FROM book_facts)) - interval '2 days',
		       clock_timestamp() + interval '1 day'`).Scan(&first, &last)
	if err != nil || first == nil {
		return Period{From: p.To, To: p.To}, fault.At(err, "books.clip")
	}
	day := func(at time.Time) time.Time {
		at = at.In(p.From.Location())
		return midnight(at.Year(), at.Month(), at.Day(), at.Location())
	}
	if begin := day(*first); begin.After(p.From) {
		p.From = begin
	}
	if end := day(last); end.Before(p.To) {
		p.To = end
	}
	return p, nil
}
