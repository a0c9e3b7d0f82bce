package export_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func written(t *testing.T, db postgres.DB, p export.Parameters) []byte {
	t.Helper()
	r, err := p.Check()
	servers.NoError(t, err)
	e, err := export.Open(t.Context(), db, r)
	servers.NoError(t, err)
	var out bytes.Buffer
	servers.NoError(t, e.Write(t.Context(), &out))
	return out.Bytes()
}

// table reads CSV: its columns, and its rows by the names of these.
func table(t *testing.T, separator rune, body []byte) (columns []string, rows []map[string]string) {
	t.Helper()
	if bytes.Count(body, []byte("\r\n")) != bytes.Count(body, []byte("\n")) || !bytes.HasSuffix(body, []byte("\r\n")) {
		t.Errorf("lines do not end as RFC 4180 says: %q", body)
	}
	reader := csv.NewReader(bytes.NewReader(body))
	reader.Comma = separator
	lines, err := reader.ReadAll()
	servers.NoError(t, err)
	for _, line := range lines[1:] {
		row := make(map[string]string)
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return lines[0], rows
}

// wants compares the members of a row that are named.
func wants(t *testing.T, what string, row, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if row[name] != value {
			t.Errorf("%s: %s is %q, want %q", what, name, row[name], value)
		}
	}
}

// sold makes purchases of most kinds, with what came after them.
func sold(t *testing.T) (db *pgxpool.Pool, bought map[string]string) {
	t.Helper()
	db, bought = servers.DB(t), make(map[string]string)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	buy := func(user string, layer, n int) uuid.UUID {
		p := fixture.Buy(t, db, id, user, layer, n)
		bought[user] = p.String()
		return p
	}
	cash, parted := buy("=cash", 6, 1), buy("parted", 5, 3)
	card, _ := fixture.BuyByCard(t, db, id, "card", 4, 1)
	wallet := fixture.Wallet(t, db, "wallet", 1000)
	fixture.Complete(t, db, fixture.WalletRequest(t, id, "wallet", 3, 1))
	bought["card"], bought["of wallet"] = card.String(), wallet.String()
	column := servers.Value[int](t, db, `SELECT min(col) FROM purchase_items WHERE purchase_id = $1`, parted)
	_, err := fixture.Seller(db).Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, id, cash), fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: parted,
		By: "app:test/mina", Reason: "@one", Positions: []shape.Position{fixture.At(5, column)}})), sale.WaitForCampaign)
	servers.NoError(t, err)
	servers.Exec(t, db, `UPDATE refunds SET state = 'resolved', resolved_by = 'app:test', resolve_reason = 'at the till', finished_at = now() WHERE purchase_id = $1`, cash)
	servers.Exec(t, db, `INSERT INTO payment_steps (purchase_id, at, event) VALUES ($1, '2026-01-01T00:00:00Z', 'captured')`, card)
	servers.Exec(t, db, `UPDATE payments SET intent_id = 'pi_1', disputed_at = now(), amount_disputed = 400, dispute = '{"id": "du_1", "status": "lost"}' WHERE purchase_id = $1`, card)
	servers.Exec(t, db, `INSERT INTO disputes (id, purchase_id, status, reason, refundable, lost, opened_at, closed_at, amount, currency, fee, fee_currency) VALUES ('du_1', $1, 'lost', 'fraudulent', false, true, now(), now(), 400, 'JPY', 1500, 'USD')`, card)
	servers.Exec(t, db, `
		INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, exchange_rate, created_at, available_on, source_id, intent_id)
		SELECT 'txn_' || n, current_date, c, c, true, amount, 'USD', fee, amount - fee, rate, now(), now(), 'of_' || n, intent
		FROM (VALUES (1, 'charge', 260, 12, 0.0065, 'pi_1'), (2, 'dispute', -260, 1500, NULL, 'pi_1'), (3, 'payout', -25000, 0, NULL, NULL), (4, 'fee', -7, 0, NULL, NULL)) v (n, c, amount, fee, rate, intent)`)
	return db, bought
}

// around is a period with all that has just happened.
func around(kind string) export.Parameters {
	day := func(n int) string { return time.Now().AddDate(0, 0, n).Format(time.DateOnly) }
	return export.Parameters{Kind: kind, Rules: books.Rules{EarnedAt: books.AtResult}, From: day(-2), To: day(3), Zone: "Asia/Tokyo"}
}

func TestAnExportHasWhatAnAccountantAsksFor(t *testing.T) {
	t.Parallel()
	db, bought := sold(t)
	_, rows := table(t, ',', written(t, db, around("purchases")))
	if len(rows) != 4 {
		t.Fatal(rows)
	}
	wants(t, "cash", rows[0], map[string]string{"id": bought["=cash"], "user_id": "'=cash", "client": "test", "state": "cancelled", "payment_method": "external", "currency": "JPY",
		"amount": "600", "amount_minor": "600", "amount_refunded": "600", "refund_states": "resolved", "cancelled_by": "app:test", "captured_at": "", "fees": "", "parts": "", "metadata": ""})
	wants(t, "parted", rows[1], map[string]string{"id": bought["parted"], "state": "completed", "amount_cancelled_minor": "500", "amount_refunded": "0", "quantity": "2", "refund_states": "listed"})
	if !strings.Contains(rows[1]["parts"], `"amount_minor":500,"amount":"500","by":"app:test/mina","reason":"@one","positions":["L5C`) || !strings.HasSuffix(rows[1]["created_at"], "+09:00") {
		t.Error(rows[1])
	}
	wants(t, "card", rows[2], map[string]string{"id": bought["card"], "captured_at": "2026-01-01T09:00:00+09:00", "payment_reference": "pi_1", "fees_minor": "12", "fees": "0.12", "fee_currency": "USD",
		"exchange_rate": "0.0065", "amount_disputed": "400", "dispute_status": "lost", "amount_refunded": "0"})
	wants(t, "wallet", rows[3], map[string]string{"user_id": "wallet", "payment_method": "wallet", "quantity": "1"})

	if !servers.Value[bool](t, db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT $1, id, 1, campaign_id, user_id, 'card', amount, currency, 'cancelled', 'failed' FROM purchases WHERE id = $2 RETURNING failed_at IS NOT NULL`, uuidv7.New(), bought["card"]) {
		t.Error("one that fails at once has no date")
	}
	for _, change := range []string{`state = 'succeeded', finished_at = '2026-11-01T00:00:00Z'`, `state = 'failed', failure = 'lost'`, `state = 'resolved', resolved_by = 'operator', resolve_reason = 'by bank'`} {
		servers.Exec(t, db, `UPDATE refunds SET `+change+` WHERE purchase_id = $1`, bought["card"])
	}
	_, rows = table(t, ',', written(t, db, around("refunds")))
	if len(rows) != 3 {
		t.Fatal(rows)
	}
	back := make(map[string]map[string]string)
	for _, row := range rows {
		back[row["purchase_id"]] = row
	}
	late := back[bought["card"]]
	wants(t, "failed after it had succeeded", late, map[string]string{"paid_back": "by-hand", "succeeded_at": "2026-11-01T09:00:00+09:00", "failure": "lost", "resolved_by": "operator"})
	if !(late["failed_at"] > late["succeeded_at"] && late["resolved_at"] > late["failed_at"]) || back[bought["=cash"]]["resolved_at"] == "" {
		t.Error(rows)
	}
	wants(t, "paid back in cash", back[bought["=cash"]], map[string]string{"state": "resolved", "paid_back": "cash", "amount": "600", "resolved_by": "app:test", "requested_by": "app:test",
		"resolve_reason": "at the till", "succeeded_at": "", "reason": "cancelled", "client": "test"})
	wants(t, "owed for a part", back[bought["parted"]], map[string]string{"state": "listed", "paid_back": "", "amount_minor": "500", "requested_by": "app:test/mina", "resolved_at": ""})

	_, rows = table(t, ',', written(t, db, around("disputes")))
	if len(rows) != 1 {
		t.Fatal(rows)
	}
	wants(t, "dispute", rows[0], map[string]string{"id": "du_1", "purchase_id": bought["card"], "status": "lost", "lost": "true", "amount": "400", "fee": "15.00", "fee_currency": "USD", "client": "test"})
	if rows[0]["opened_at"] == "" || rows[0]["closed_at"] == "" {
		t.Error(rows[0])
	}

	_, rows = table(t, ',', written(t, db, around("payouts")))
	if len(rows) != 1 {
		t.Fatal(rows)
	}
	wants(t, "payout", rows[0], map[string]string{"payout": "of_3", "amount_minor": "-25000", "amount": "-250.00", "currency": "USD"})

	_, rows = table(t, ',', written(t, db, around("ledger")))
	if len(rows) != 2 {
		t.Fatal(rows)
	}
	wants(t, "paid by wallet", rows[1], map[string]string{"kind": "purchase", "posted": "true", "debit_wallet": bought["of wallet"], "debit_account": "", "credit_account": "sales", "client": "test", "amount": "300"})
}

// A business that reads its rows twice reads the same, in both formats and by both separators.
func TestFormatsHaveTheSameContent(t *testing.T) {
	t.Parallel()
	db, _ := sold(t)
	for _, kind := range export.Kinds() {
		p := around(kind)
		columns, rows := table(t, ',', written(t, db, p))
		p.Separator = "semicolon"
		if _, again := table(t, ';', written(t, db, p)); !slices.EqualFunc(rows, again, maps.Equal) {
			t.Errorf("%s by semicolon: %v, want %v", kind, again, rows)
		}
		p.Separator, p.Lines = "", true
		lines := strings.Split(strings.TrimSuffix(string(written(t, db, p)), "\n"), "\n")
		if len(rows) == 0 {
			lines = nil
		}
		if len(lines) != len(rows) {
			t.Fatalf("%s: %d lines and %d rows", kind, len(lines), len(rows))
		}
		for i, line := range lines {
			var members []string
			decoder := json.NewDecoder(strings.NewReader(line))
			_, _ = decoder.Token()
			for decoder.More() {
				name, _ := decoder.Token()
				var value any
				decoder.UseNumber()
				servers.NoError(t, decoder.Decode(&value))
				members = append(members, name.(string))
				text, isText := value.(string)
				if text = strings.ReplaceAll(text, "=cash", "'=cash"); isText && text != rows[i][name.(string)] || value == nil && rows[i][name.(string)] != "" {
					t.Errorf("%s: %v is %q in CSV and %v in JSON", kind, name, rows[i][name.(string)], value)
				}
				if number, ok := value.(json.Number); ok && number.String() != rows[i][name.(string)] {
					t.Errorf("%s: %v is %q in CSV and %v in JSON", kind, name, rows[i][name.(string)], value)
				}
			}
			if !slices.Equal(members, columns) {
				t.Errorf("%s: members %v, columns %v", kind, members, columns)
			}
		}
	}
}

// insertSold stores external purchases of a client, each as of a moment.
func insertSold(t *testing.T, db *pgxpool.Pool, client string, moments ...time.Time) {
	t.Helper()
	ids := make([]uuid.UUID, len(moments))
	for i, at := range moments {
		ids[i] = uuidv7.FirstAt(at.Add(-time.Minute)) // its job has waited
		copy(ids[i][8:], uuid.New().NodeID())
	}
	servers.Exec(t, db, `
		INSERT INTO purchases (id, campaign_id, user_id, client, amount, currency, payment_method, state, nonce, created_at, completed_at)
		SELECT id, gen_random_uuid(), 'mina', $3, 100, 'JPY', 'external', 'completed', decode(md5(id::text), 'hex'), at, at FROM unnest($1::uuid[], $2::timestamptz[]) AS u (id, at)`, ids, moments, client)
}

func TestADayIsThatOfTheBusiness(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := func(text string) time.Time {
		t.Helper()
		moment, err := time.Parse(time.RFC3339, text)
		servers.NoError(t, err)
		return moment
	}
	insertSold(t, db, "shop", at("2026-10-24T21:59:59Z"), at("2026-10-24T22:00:00Z"), at("2026-10-25T22:59:59Z"), at("2026-10-25T23:00:00Z")) // the clock is set back: 25 hours
	_, rows := table(t, ',', written(t, db, export.Parameters{Kind: "purchases", From: "2026-10-25", To: "2026-10-26", Zone: "Europe/Berlin"}))
	var got []string
	for _, row := range rows {
		got = append(got, row["created_at"])
	}
	if want := []string{"2026-10-25T00:00:00+02:00", "2026-10-25T23:59:59+01:00"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAWalletIsShownAsOfADay(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	wallet := fixture.Wallet(t, db, "mina", 0)
	const events = 500 // more than a snapshot is made for
	servers.Exec(t, db, `UPDATE wallets SET balance = 100 * $2, version = $2, created_at = '2026-10-01T00:00:00Z' WHERE id = $1`, wallet, events)
	servers.Exec(t, db, `INSERT INTO wallet_events (wallet_id, version, entry_id, delta_balance, delta_held, at)
		SELECT $1, n, gen_random_uuid(), 100, 0, timestamptz '2026-10-01T00:00:00Z' + n * interval '1 hour' FROM generate_series(1, $2::int) n`, wallet, events)
	servers.Exec(t, db, `INSERT INTO wallet_snapshots (wallet_id, version, balance, held) VALUES ($1, 100, 10000, 0), ($1, 300, 30000, 0)`, wallet)
	for day, want := range map[string]string{"2026-10-01": "", "2026-10-02": "23 2300", "2026-10-05": "95 9500", "2026-10-06": "119 11900", "2026-10-14": "311 31100", "2026-12-01": "500 50000"} {
		_, rows := table(t, ',', written(t, db, export.Parameters{Kind: "wallets", AsOf: day}))
		got := ""
		for _, row := range rows {
			got += row["version"] + " " + row["balance"]
		}
		if got != want {
			t.Errorf("as of %s: %q, want %q", day, got, want)
		}
	}
	for _, from := range []string{"2026-10-01", ""} {
		if _, rows := table(t, ',', written(t, db, export.Parameters{Kind: "wallets", From: from, To: "2026-10-06"})); rows[0]["balance"] != "11900" || rows[0]["as_of"] != "2026-10-06T00:00:00Z" {
			t.Error(rows)
		}
	}
}

// Whatever a statement leaves out, it looks at a page.
func TestAPageOfAnExportIsBounded(t *testing.T) {
	t.Parallel()
	const n, page = 5000, 500
	db := servers.DB(t)
	moments := make([]time.Time, n)
	for i := range moments { // those of November, of the week before, which may be held up, and others
		moments[i] = time.Date(2026, 10, 20+i*22/n, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Second)
	}
	insertSold(t, db, "shop", moments...)
	servers.Exec(t, db, `VACUUM (ANALYZE, INDEX_CLEANUP ON) purchases`)
	reads := &perStatement{Reads: servers.CountReads(t, db)}
	shop, kiosk := "shop", "kiosk"
	p := export.Parameters{Kind: "purchases", From: "2026-11-01", To: "2026-12-01", Client: &shop}
	_, rows := table(t, ',', written(t, reads, p))
	if want := n - slices.IndexFunc(moments, func(at time.Time) bool { return at.Month() == time.November }); len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	held := slices.IndexFunc(moments, func(at time.Time) bool { return at.Month() == time.November || at.Day() >= 25 })
	if reads.statements != (n-held)/page+2 || reads.most > 8*page { // each row has items, layers, refunds to look for
		t.Errorf("%d statements, and one looks at %d rows", reads.statements, reads.most)
	}
	p.Client, reads.most, reads.statements = &kiosk, 0, 0
	r, err := p.Check()
	servers.NoError(t, err)
	opened, err := export.Open(t.Context(), reads, r)
	servers.NoError(t, err)
	if opened.Close(); reads.statements != 1 {
		t.Errorf("an export is open after %d statements", reads.statements)
	}
	if _, rows := table(t, ',', written(t, reads, p)); len(rows) != 0 || reads.most > 2*page+10 {
		t.Errorf("of another client: %d rows, and a statement looks at %d", len(rows), reads.most)
	}
}

func TestWrongParametersAreNamed(t *testing.T) {
	t.Parallel()
	shop := "shop"
	for want, p := range map[string]export.Parameters{
		"kind":                   {Kind: "sales"},
		"?from":                  {Kind: "purchases", To: "2026-11-01"},
		"?to":                    {Kind: "purchases", From: "2026-11-01", To: "2026-11-01"},
		"?zone":                  {Kind: "ledger", From: "2026-11-01", To: "2026-11-02", Zone: "Asia/Edo"},
		"?separator":             {Kind: "ledger", From: "2026-11-01", To: "2026-11-02", Separator: ";"},
		"?as_of":                 {Kind: "refunds", AsOf: "2026-11-01"},
		"?as_of: m":              {Kind: "wallets", AsOf: "today"},
		"?to: must be a day, as": {Kind: "wallets", To: "today"},
		"?as_of: do":             {Kind: "wallets", AsOf: "2026-11-01", To: "2026-11-02"},
		"only oper":              {Kind: "journal", From: "2026-11-01", To: "2026-11-02", Client: &shop},
	} {
		if _, err := p.Check(); err == nil || !strings.Contains(err.Error(), ": "+want) {
			t.Errorf("%v: %v, want %s", p, err, want)
		}
	}
	r, err := export.Parameters{Kind: "wallets", AsOf: "2026-12-01", Zone: "Asia/Tokyo", Lines: true}.Check()
	if got := fmt.Sprint(r.FileName(), " ", r.ContentType(), " ", err); got != "triprize-wallets-2026-12-01.ndjson application/x-ndjson <nil>" {
		t.Error(got)
	}
}

func TestAStatementThatIsTooSlowIsNotRepeated(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	settings.Postgres.StatementTimeout = 50 * time.Millisecond
	db := &perStatement{Reads: servers.CountReads(t, servers.Pool(t, settings))}
	if _, err := books.Page(t.Context(), db, pgx.RowTo[int], `SELECT 1 FROM pg_sleep(3600)`); !postgres.IsTooSlow(err) || db.statements != 1 {
		t.Errorf("%d times: %v", db.statements, err)
	}
}

// perStatement has how many statements there were, and how many rows one looks at.
type perStatement struct {
	*servers.Reads
	statements, most int
}

// Query implements postgres.DB.
func (s *perStatement) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := s.Reads.Query(ctx, sql, args...)
	looked, _ := s.Rows()
	s.statements, s.most = s.statements+1, max(s.most, looked)
	return rows, err
}
