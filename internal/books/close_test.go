package books_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// clocked is a database whose clock is set by the returned function.
func clocked(t *testing.T) (db *pgxpool.Pool, set func(moment string)) {
	t.Helper()
	db = servers.DB(t)
	servers.Exec(t, db, `CREATE TABLE public.clock_offset AS SELECT interval '0' AS by`)
	servers.Exec(t, db, `CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() + by FROM public.clock_offset'`)
	servers.Exec(t, db, `DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' AND column_default = 'clock_timestamp()' LOOP
			EXECUTE format('ALTER TABLE %I ALTER %I SET DEFAULT public.clock_timestamp()', c.table_name, c.column_name);
		END LOOP;
		EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$`)
	db.Reset()
	return db, func(moment string) {
		t.Helper()
		servers.Exec(t, db, `UPDATE public.clock_offset SET by = $1::timestamptz - pg_catalog.clock_timestamp()`, moment)
	}
}

// closing closes a month, up to its stored hash.
func closing(t *testing.T, db *pgxpool.Pool, c books.Closing) (m books.Month, err error) {
	t.Helper()
	c.By, c.Rules.Numbers = "operator:test", now.Numbers
	if c.Rules.EarnedAt == "" {
		c.Rules.EarnedAt = now.EarnedAt
	}
	err = postgres.InTx(t.Context(), db, func(tx pgx.Tx) (err error) {
		m, err = c.Close(t.Context(), tx)
		return err
	})
	if err != nil {
		return m, err
	}
	name, _, err := books.Advance(t.Context(), db, export.Hashed)
	if err != nil || name != c.Month {
		t.Fatalf("closed %q, %v", name, err)
	}
	m, err = books.GetMonth(t.Context(), db, name)
	return m, err
}

// refused closes a month that must be refused with a text.
func refused(t *testing.T, db *pgxpool.Pool, c books.Closing, want string) {
	t.Helper()
	_, err := closing(t, db, c)
	text := fmt.Sprint(err)
	for _, f := range fault.From(err).Fields {
		text += "\n" + f.Detail
	}
	if !strings.Contains(text, want) {
		t.Errorf("%s: %s, want %q", c.Month, text, want)
	}
}

// sums are the balances of a month that are not 0, and what was sold.
func sums(m books.Month) string {
	var all []string
	for _, b := range m.Statement.Balances {
		if b.Opening != 0 || b.Closing != 0 {
			all = append(all, fmt.Sprintf("%s %d→%d", b.Account, b.Opening, b.Closing))
		}
	}
	for _, s := range m.Statement.Methods {
		all = append(all, fmt.Sprintf("%s %d=%d+%d+%d", s.Method, s.Sold, s.Kept, s.GivenBack, s.Disputed))
	}
	return strings.Join(all, ", ")
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

func verified(t *testing.T, db *pgxpool.Pool, m books.Month) string {
	t.Helper()
	differences, err := books.Verify(t.Context(), db, m, export.Hashed)
	servers.NoError(t, err)
	return strings.Join(differences, "; ")
}

func TestMonthsAreClosedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const tokyo = "Asia/Tokyo"
	db, clock := clocked(t)
	clock("2026-08-31 14:00+00") // 23:00 in Tokyo
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Wallet(t, db, "mina", 5000)
	clock("2026-08-31 15:30+00") // 00:30
	wallet := fixture.Complete(t, db, fixture.WalletRequest(t, campaign, "mina", 2, 2))[0].ID
	fixture.Buy(t, db, campaign, "ole", 1, 1)
	card, _ := fixture.BuyByCard(t, db, campaign, "pia", 4, 2)
	cancelled(t, db, campaign, card)
	refund := func(set string) { servers.Exec(t, db, `UPDATE refunds SET `+set+` WHERE purchase_id = $1`, card) }

	september := books.Closing{Month: "2026-09", Zone: tokyo}
	clock("2026-09-30 15:59+00")
	refused(t, db, september, "can be closed from 2026-09-30T16:00:00Z on")
	clock("2026-10-01 03:00+00")
	refused(t, db, books.Closing{Month: "2026-09"}, "zone: is required")
	refused(t, db, books.Closing{Month: "2026-09", Zone: "Tokyo"}, "IANA")
	refused(t, db, books.Closing{Month: "2026-9", Zone: tokyo}, "must be a month")
	refused(t, db, september, "refund")
	refund(`state = 'succeeded', provider_id = 're_1', finished_at = clock_timestamp() - interval '1 hour'`)
	fixture.Reserve(t, db, campaign, "quinn", 1, time.Hour)
	servers.Exec(t, db, `UPDATE payments SET created_at = created_at - interval '2 days' WHERE finished_at IS NULL`)
	refused(t, db, september, "payment ")
	september.WithOpen = true
	m, err := closing(t, db, september)
	servers.NoError(t, err)
	same(t, "September", sums(m), "receivable 0→800, cash_outside 5000→5100, wallet_liability -5000→-4600, unearned 0→-500, refunds_payable 0→-800, card 800=0+800+0, external 100=100+0+0, wallet 400=400+0+0")
	if len(m.Open) != 1 || m.Open[0].Kind != "payment" {
		t.Errorf("carried: %+v", m.Open)
	}
	same(t, "verified", verified(t, db, m), "")
	same(t, "its hash", hex.EncodeToString(m.Hash), exported(t, db, "2026-09-01", "2026-10-01", tokyo))

	refused(t, db, september, "is closed; a closed month cannot be opened again")
	refused(t, db, books.Closing{Month: "2026-11", Zone: tokyo}, "does not follow 2026-09")
	refused(t, db, books.Closing{Month: "2026-10", Zone: "UTC"}, "the zone of the books is Asia/Tokyo")
	refused(t, db, books.Closing{Month: "2026-10", Rules: books.Rules{EarnedAt: books.AtSaleEnd}}, "books.earned_at is sale_end")

	for _, c := range [][3]string{{"2026-08", "", "the books begin with 2026-09"}, {"2026-11", "UTC", "the zone of the books is Asia/Tokyo"}} {
		if _, err := books.Preview(t.Context(), db, c[0], c[1], true, now); !strings.Contains(fmt.Sprint(err), c[2]) {
			t.Errorf("%s in %q: %v, want %s", c[0], c[1], err, c[2])
		}
	}

	// What September has, changes in October, and says so.
	cancelled(t, db, campaign, wallet)
	refund(`state = 'failed', failure = 'closed account'`)
	servers.Exec(t, db, `INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, created_at, available_on)
		VALUES ('txn_1', '2026-09-15', 'payout', 'payout', true, -300, 'JPY', 0, -300, '2026-09-15', '2026-09-15')`)
	clock("2026-11-01 03:00+00")
	october, err := books.ParseMonth("2026-10", tokyo)
	servers.NoError(t, err)
	wants(t, db, october, "refund refunds_payable+800 receivable-800", "refund unearned+400 adjusts wallet_liability-400",
		"refund receivable+800 adjusts refunds_payable-800", "balance_transaction bank+300 adjusts receivable-300")
	m, err = closing(t, db, books.Closing{Month: "2026-10", WithOpen: true})
	servers.NoError(t, err)
	same(t, "October", sums(m), "receivable 800→500, cash_outside 5100→5100, wallet_liability -4600→-5000, unearned -500→-100, refunds_payable -800→-800, bank 0→300, wallet 0=-400+400+0")
	first, err := books.GetMonth(t.Context(), db, "2026-09")
	servers.NoError(t, err)
	same(t, "September, later", verified(t, db, first), "")
}

// exported is the hash of an export of the journal.
func exported(t *testing.T, db *pgxpool.Pool, from, to, zone string) string {
	t.Helper()
	r, err := export.Parameters{Kind: "journal", From: from, To: to, Zone: zone, Rules: now}.Check()
	servers.NoError(t, err)
	e, err := export.Open(t.Context(), db, r)
	servers.NoError(t, err)
	var out bytes.Buffer
	servers.NoError(t, e.Write(t.Context(), &out))
	sum := sha256.Sum256(out.Bytes())
	return hex.EncodeToString(sum[:])
}

// facts puts a fact into each day of a month.
func facts(t *testing.T, db *pgxpool.Pool, first string) {
	t.Helper()
	servers.Exec(t, db, `
		INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency, method)
		SELECT d::date, 'payment', 'document-' || n, d, 'receivable', 'unearned', n, 'EUR', 'card'
		FROM generate_series($1::timestamptz, $1::timestamptz + interval '1 month' - interval '1 day', interval '1 day') WITH ORDINALITY AS s (d, n)`, first)
}

// The first month opens with what was before it.
func TestTheFirstMonthOpensWithWhatWasBefore(t *testing.T) {
	t.Parallel()
	db, clock := clocked(t)
	clock("2027-06-01 01:00+00")
	facts(t, db, "2027-04-01 12:00+00")
	facts(t, db, "2027-05-01 12:00+00")
	m, err := closing(t, db, books.Closing{Month: "2027-05", Zone: "Europe/Berlin"})
	servers.NoError(t, err)
	same(t, "May", sums(m), "receivable 465→961, unearned -465→-961, card 496=496+0+0")
	if *m.Entries != 31 {
		t.Errorf("%d entries", *m.Entries)
	}
}

// What is changed beside the triggers is found, and a closed month stays.
func TestAJournalThatWasChangedIsFound(t *testing.T) {
	t.Parallel()
	db, clock := clocked(t)
	clock("2027-08-01 01:00:01+00")
	facts(t, db, "2027-07-01 12:00+00")
	m, err := closing(t, db, books.Closing{Month: "2027-07", Zone: "UTC"})
	servers.NoError(t, err)
	for _, refused := range []string{`UPDATE book_facts SET amount = 9`, `DELETE FROM book_facts`, `TRUNCATE book_facts`, `UPDATE book_periods SET hash = sha256('')`,
		`UPDATE book_periods SET closed_at = NULL, hash = NULL, statement = NULL, entries = NULL`, `DELETE FROM book_periods`, `TRUNCATE book_periods`} {
		if _, err := db.Exec(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", refused, err)
		}
	}
	for change, want := range map[string]string{
		`UPDATE book_facts SET amount = amount + 1 WHERE document_id = 'document-7'`:         "payment receivable card EUR: 496 debit",
		`UPDATE book_facts SET document_id = 'another' WHERE document_id = 'document-7'`:     "its hash is",
		`DELETE FROM book_facts WHERE document_id = 'document-7'`:                            "30 entries, and 31 were closed",
		`UPDATE book_facts SET at = at + interval '1 day' WHERE document_id = 'document-7'`:  "its hash is",
		`UPDATE book_periods SET statement = jsonb_set(statement::jsonb, '{methods}', '[]')`: "the audit trail has another hash, or other sums",
	} {
		tx, err := db.Begin(t.Context())
		servers.NoError(t, err)
		servers.Exec(t, tx, `SET LOCAL session_replication_role = replica`)
		servers.Exec(t, tx, change)
		differences, err := books.Verify(t.Context(), tx, m, export.Hashed)
		if text := strings.Join(differences, "; "); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %s, %v", change, text, err)
		}
		servers.NoError(t, tx.Rollback(t.Context()))
	}
}

// Until the transactions that are older than a closing have ended, it is not known what they have dated in the month.
func TestAClosingWaitsForOlderTransactions(t *testing.T) {
	t.Parallel()
	db, clock := clocked(t)
	begin := func() pgx.Tx {
		tx, err := db.Begin(t.Context())
		servers.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	clock("2027-10-01 01:00:01+00")
	facts(t, db, "2027-09-01 12:00+00")
	reader := begin()
	servers.Exec(t, reader, `SELECT FROM book_facts`) // it writes nothing
	older := begin()
	servers.Exec(t, older, `SET application_name = 'psql'`)
	servers.Exec(t, older, `INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency) VALUES ('2027-09-30', 'payment', 'late', '2027-09-30 23:59+00', 'receivable', 'unearned', 5, 'EUR')`)
	servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := books.Closing{Month: "2027-09", Zone: "UTC", By: "operator:test", Rules: now}.Close(t.Context(), tx)
		return err
	}))
	for range 2 {
		servers.Exec(t, db, `UPDATE book_periods SET fence = '99999999999'`) // of the server whose dump was restored
		if name, parts, err := books.Advance(t.Context(), db, export.Hashed); err == nil || !strings.Contains(err.Error(), "is older than the closing of") || !strings.Contains(err.Error(), "(psql), since") || name != "" || parts != 0 {
			t.Fatalf("%q %d %v", name, parts, err)
		}
	}
	younger := begin()
	servers.Exec(t, younger, `UPDATE book_periods SET fence = fence WHERE false`)
	servers.Exec(t, younger, `SELECT pg_current_xact_id()`)
	servers.NoError(t, older.Commit(t.Context()))
	if name, _, err := books.Advance(t.Context(), db, export.Hashed); err != nil || name != "2027-09" {
		t.Fatal(name, err)
	}
	m, err := books.GetMonth(t.Context(), db, "2027-09")
	if err != nil || *m.Entries != 31 {
		t.Error(m.Entries, err)
	}
}

// All purchases of a campaign are read for its entry: a closing that is cut off reads none twice.
func TestTheEntryOfACampaignEndsAPart(t *testing.T) {
	t.Parallel()
	db, clock := clocked(t)
	clock("2027-11-05 12:00+00")
	for range 2 {
		fixture.Buy(t, db, fixture.Campaign(t, db, fixture.Draft(3)), "mina", 1, 1)
	}
	servers.Exec(t, db, `UPDATE campaigns SET state = 'drawing', draw_started_at = clock_timestamp()`)
	servers.Exec(t, db, `UPDATE campaigns SET state = 'completed', draw_completed_at = clock_timestamp()`)
	clock("2027-12-01 01:00:01+00")
	servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := books.Closing{Month: "2027-11", Zone: "UTC", By: "operator:test", Rules: now}.Close(t.Context(), tx)
		return err
	}))
	cut, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := books.ClosingMonths(db, export.Hashed).Run(cut, sweep.Run{Counts: sweep.Counts{}}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sweep.ErrMore) {
		t.Errorf("a run that has read no part: %v", err)
	}
	if name, parts, err := books.Advance(t.Context(), db, export.Hashed); name != "2027-11" || parts != 30+2 || err != nil {
		t.Errorf("%s in %d parts, %v", name, parts, err)
	}
}
