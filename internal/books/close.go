package books

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
)

// Month is a period that is closed, or being closed.
type Month struct {
	Name      string // 2026-11
	StartsAt  time.Time
	EndsAt    time.Time // not included
	Zone      string
	EarnedAt  EarnedAt
	Numbers   map[Account]string
	Opening   []Balance
	Open      []OpenItem // that were carried as open
	ClosedBy  string     // role:client
	BeganAt   time.Time
	DoneUntil time.Time // the days before it are in progress
	Progress  progress
	ClosedAt  *time.Time // nil: it is being closed
	Entries   *int64
	Hash      []byte // SHA-256 of the journal as CSV with commas
	Statement *Statement
}

const monthColumns = `name, starts_at, ends_at, zone, earned_at, numbers, opening, open, closed_by, began_at, done_until, progress, closed_at, entries, hash, statement`

var scanMonth = pgx.RowToStructByPos[Month]

// Period returns the days of the month, in its zone.
func (m Month) Period() (Period, error) {
	zone, err := time.LoadLocation(m.Zone)
	return Period{m.StartsAt.In(zone), m.EndsAt.In(zone)}, err
}

// Months returns all months that are closed or being closed, the newest first.
func Months(ctx context.Context, db postgres.DB) ([]Month, error) {
	all, err := postgres.Collect(ctx, db, scanMonth, `SELECT `+monthColumns+` FROM book_periods ORDER BY starts_at DESC`)
	return all, fault.At(err, "books.Months")
}

// rulesOf returns the rules of a moment: those of its closed month, and otherwise the present ones. When sales are earned is
// fixed by the first month.
func rulesOf(ctx context.Context, db postgres.DB, now Rules) (func(time.Time) Rules, error) {
	months, err := Months(ctx, db)
	if len(months) > 0 {
		now.EarnedAt = months[0].EarnedAt
	}
	return func(at time.Time) Rules {
		for _, m := range months {
			if !at.Before(m.StartsAt) && at.Before(m.EndsAt) {
				return Rules{m.EarnedAt, m.Numbers}
			}
		}
		return now
	}, err
}

// ParseMonth reads a month, 2006-01, of a zone.
func ParseMonth(name, zone string) (Period, error) {
	first, err := time.Parse("2006-01", name)
	if err != nil || len(name) != len("2006-01") {
		return Period{}, fault.Invalid(fault.Field{Pointer: "/month", Detail: "must be a month, as 2026-11"})
	}
	p, err := ParsePeriod(first.Format(time.DateOnly), first.AddDate(0, 1, 0).Format(time.DateOnly), zone)
	if err != nil {
		return Period{}, fault.Invalid(fault.Field{Pointer: "/zone", Detail: "is not the IANA name of a time zone, such as Asia/Tokyo"})
	}
	return p, nil
}

// OpenItem is what can still change money of a month: a payment, a refund, or a day of the provider that is not compared.
type OpenItem struct {
	Kind     string       `json:"kind"` // payment, refund or day
	ID       string       `json:"id"`
	State    string       `json:"state"`
	Amount   money.Amount `json:"amount"` // minor units
	Currency string       `json:"currency"`
}

// mostOpen bounds the items that are listed or carried.
const mostOpen = 1000

// compared is when a day of the provider is, after its end: see package reconciliation.
const compared = 48 * time.Hour

// OpenOf returns what is open of a period. withCards says that a provider is configured: its days (UTC) must be compared.
func OpenOf(ctx context.Context, db postgres.DB, p Period, withCards bool) ([]OpenItem, error) {
	open, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[OpenItem], `
		(SELECT 'day', to_char(d, 'YYYY-MM-DD'), 'not compared', 0::bigint, ''
		 FROM installation i, generate_series(date_trunc('day', greatest($1::timestamptz, i.created_at) AT TIME ZONE 'UTC'), ($2::timestamptz AT TIME ZONE 'UTC') - interval '1 microsecond', interval '1 day') AS d
		 WHERE $3 AND NOT EXISTS (SELECT FROM reconciled_days WHERE day = d::date AND done_at IS NOT NULL)
		   AND d::date >= coalesce((SELECT min(day) FROM reconciled_days), '-infinity') ORDER BY d LIMIT $4)
		UNION ALL (SELECT 'payment', purchase_id::text, phase, amount, currency FROM payments WHERE finished_at IS NULL AND created_at < $2 ORDER BY purchase_id LIMIT $4)
		UNION ALL (SELECT 'refund', id::text, state, amount, currency FROM (
			SELECT * FROM refunds WHERE due_at IS NOT NULL UNION SELECT * FROM refunds WHERE `+payment.ForOperatorSQL+`) r
		 WHERE method = 'card' AND number IS NOT NULL AND state NOT IN ('succeeded', 'resolved') AND created_at < $2 ORDER BY id LIMIT $4)`,
		p.From, p.To, withCards, mostOpen)
	return open, fault.At(err, "books.OpenOf")
}

// ToClose returns the zone in which a month would be closed (the given one, or that of the books), and what is open of it.
func ToClose(ctx context.Context, db postgres.DB, month, zone string, withCards bool) (string, []OpenItem, error) {
	known, err := Months(ctx, db)
	if err != nil {
		return zone, nil, err
	}
	if zone, err = zoneOf(known, zone); err != nil {
		return zone, nil, err
	}
	p, err := ParseMonth(month, zone)
	if err != nil {
		return zone, nil, err
	}
	open, err := OpenOf(ctx, db, p, withCards)
	return zone, open, err
}

// zoneOf returns the zone of the books, or before their first month the given one, which may be empty. Another zone is a state-conflict Error.
func zoneOf(known []Month, zone string) (string, error) {
	switch {
	case len(known) == 0:
		return zone, nil
	case zone != "" && zone != known[0].Zone:
		return zone, fault.New(fault.StateConflict, "the zone of the books is %s, since %s was closed", known[0].Zone, known[len(known)-1].Name)
	}
	return known[0].Zone, nil
}

// Closing is a request to close a month.
type Closing struct {
	Month     string // 2026-11
	Zone      string // IANA; empty: that of the books
	WithOpen  bool   // what is open is carried, by name, except days of the provider
	WithCards bool   // a provider is configured
	Rules     Rules
	By        string // role:client
}

// Close begins to close a month, in a transaction: from its commit on no fact is dated in it. [Advance] does the rest.
// A month that is not over for an hour (with cards: whose last day of the provider is not over for 48 hours), is closed, leaves a gap, has another
// zone than the books, or in which something is open, is a state-conflict Error.
func (c Closing) Close(ctx context.Context, tx pgx.Tx) (m Month, err error) {
	if _, err := tx.Exec(ctx, `LOCK TABLE book_periods IN SHARE ROW EXCLUSIVE MODE`); err != nil { // triggers read it meanwhile
		return m, fault.At(err, "books.Close(%s)", c.Month)
	}
	known, err := Months(ctx, tx)
	if err != nil {
		return m, err
	}
	zone, err := zoneOf(known, c.Zone)
	if err != nil {
		return m, err
	}
	if zone == "" {
		return m, fault.Invalid(fault.Field{Pointer: "/zone", Detail: "is required: the first month fixes the zone of the books, such as Asia/Tokyo"})
	}
	p, err := ParseMonth(c.Month, zone)
	if err == nil {
		err = c.check(ctx, tx, p, known)
	}
	if err != nil {
		return m, err
	}
	open, err := OpenOf(ctx, tx, p, c.WithCards)
	if err != nil {
		return m, err
	}
	if len(open) > 0 && (!c.WithOpen || slices.ContainsFunc(open, func(o OpenItem) bool { return o.Kind == "day" }) || len(open) >= mostOpen) {
		return m, isOpen(c.Month, open, c.WithOpen)
	}
	doneUntil, opening := p.From, []Balance{}
	if len(known) > 0 {
		opening = known[0].Statement.closing()
	} else {
		first, err := clip(ctx, tx, Period{time.Date(1970, 1, 1, 0, 0, 0, 0, p.From.Location()), p.To})
		if err != nil {
			return m, err
		}
		if !first.From.Before(p.To) {
			return m, fault.New(fault.StateConflict, "nothing was sold before the end of %s: the first month must have a row", c.Month)
		}
		if first.From.Before(p.From) {
			doneUntil = first.From
		}
	}
	m, err = postgres.CollectOne(ctx, tx, scanMonth, `
		INSERT INTO book_periods (name, starts_at, ends_at, zone, earned_at, numbers, opening, open, closed_by, done_until, progress)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING `+monthColumns,
		c.Month, p.From, p.To, zone, c.Rules.EarnedAt, c.Rules.Numbers, opening, append([]OpenItem{}, open...), c.By, doneUntil, progress{Totals: []Total{}})
	return m, fault.At(err, "books.Close(%s)", c.Month)
}

func (c Closing) check(ctx context.Context, db postgres.DB, p Period, known []Month) error {
	refuse := func(format string, args ...any) error { return fault.New(fault.StateConflict, format, args...) }
	for _, m := range known {
		switch {
		case m.ClosedAt == nil:
			return refuse("%s is being closed, since %s", m.Name, m.BeganAt.UTC().Format(time.RFC3339))
		case m.Name == c.Month:
			return refuse("%s is closed; a closed month cannot be opened again", m.Name)
		case m.EarnedAt != c.Rules.EarnedAt:
			return refuse("sales are earned at %s in the books, since %s was closed; books.earned_at is %s", m.EarnedAt, m.Name, c.Rules.EarnedAt)
		}
	}
	if len(known) > 0 && !known[0].EndsAt.Equal(p.From) {
		return refuse("%s does not follow %s, which was closed last", c.Month, known[0].Name)
	}
	var now time.Time
	var cards bool
	if err := db.QueryRow(ctx, `SELECT clock_timestamp(), $1 AND EXISTS (SELECT FROM installation)`, c.WithCards).Scan(&now, &cards); err != nil {
		return fault.At(err, "books.Close(%s)", c.Month)
	}
	over := p.To.Add(idSlack) // the servers' clocks differ
	if cards {
		over = p.To.UTC().Truncate(24 * time.Hour)
		if over.Before(p.To) {
			over = over.AddDate(0, 0, 1)
		}
		over = over.Add(compared)
	}
	if now.Before(over) {
		return refuse("%s can be closed from %s on", c.Month, over.UTC().Format(time.RFC3339))
	}
	return nil
}

// isOpen says what is open.
func isOpen(month string, open []OpenItem, carried bool) error {
	err := fault.New(fault.StateConflict, "%d payments, refunds or days of the provider of %s are open; payments and refunds can be carried with with_open", len(open), month)
	if carried {
		err = fault.New(fault.StateConflict, "the provider's days of %s must be compared first, and at most %d payments and refunds can be carried", month, mostOpen-1)
	}
	for _, o := range open[:min(len(open), 20)] {
		detail := o.Kind + " " + o.ID + " is " + o.State
		if o.Amount > 0 {
			detail += ": " + money.Currency(o.Currency).Format(o.Amount)
		}
		err.Fields = append(err.Fields, fault.Field{Pointer: "/month", Detail: detail})
	}
	return err
}

// GetMonth returns a month that is closed or being closed, or a not-found Error.
func GetMonth(ctx context.Context, db postgres.DB, name string) (Month, error) {
	m, err := postgres.CollectOne(ctx, db, scanMonth, `SELECT `+monthColumns+` FROM book_periods WHERE name = $1`, name)
	found, err := postgres.Found(err)
	if err == nil && !found {
		return m, fault.New(fault.NotFound, "%s is not closed", name)
	}
	return m, fault.At(err, "books.GetMonth(%s)", name)
}

// Preview returns a month that is not closed, with its sums and what is open, as they are now. It reads the journal since
// the last closed month. An empty zone is that of the books, or UTC. Another zone, and a month before the first of the books, are a
// state-conflict Error.
func Preview(ctx context.Context, db postgres.DB, name, zone string, withCards bool, now Rules) (m Month, err error) {
	known, err := Months(ctx, db)
	if err != nil {
		return m, err
	}
	zone, err = zoneOf(known, zone)
	if err != nil {
		return m, err
	}
	zone = cmp.Or(zone, "UTC")
	p, err := ParseMonth(name, zone)
	if err != nil {
		return m, err
	}
	if len(known) > 0 && p.From.Before(known[len(known)-1].StartsAt) {
		return m, fault.New(fault.StateConflict, "the books begin with %s: what was before is its opening balance", known[len(known)-1].Name)
	}
	from, sums, before := time.Date(1970, 1, 1, 0, 0, 0, 0, p.From.Location()), newBook(nil, nil), []Provider(nil)
	if i := slices.IndexFunc(known, func(k Month) bool { return k.ClosedAt != nil && !k.EndsAt.After(p.From) }); i >= 0 { // the newest first
		from, sums, before = known[i].EndsAt.In(p.From.Location()), newBook(nil, known[i].Statement.closing()), known[i].Statement.Provider
	}
	if len(known) > 0 {
		now.EarnedAt = known[0].EarnedAt
	}
	all, err := clip(ctx, db, Period{from, p.To})
	if err != nil {
		return m, err
	}
	entries, ignored := int64(0), int64(0)
	for day := range all.Days() {
		number := &entries
		if day.From.Before(p.From) {
			number = &ignored
		}
		for line, err := range journalOf(ctx, db, day, now, number) {
			switch {
			case err != nil:
				return m, err
			case day.From.Before(p.From):
				sums.addBefore(line)
			default:
				sums.add(line)
			}
		}
	}
	report, err := reportOf(ctx, db, p, from, before)
	if err != nil {
		return m, err
	}
	open, err := OpenOf(ctx, db, p, withCards)
	return Month{Name: name, StartsAt: p.From, EndsAt: p.To, Zone: zone, EarnedAt: now.EarnedAt, Open: open, Entries: &entries, Statement: sums.statement(report)}, err
}
