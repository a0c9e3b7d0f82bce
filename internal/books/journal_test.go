package books_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/books"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

var (
	today  = time.Now().UTC().Truncate(24 * time.Hour)
	around = books.Period{From: today.AddDate(0, 0, -1), To: today.AddDate(0, 0, 2)} // today, and what midnight makes of it
	now    = books.Rules{EarnedAt: books.AtResult, Numbers: map[books.Account]string{books.Sales: "4000"}}
)

// entries returns the journal of a period, a text for each entry, and checks that each balances.
func entries(t *testing.T, db postgres.DB, p books.Period) (all []string) {
	t.Helper()
	var text string
	sum, entry := int64(0), int64(0)
	end := func() {
		if sum != 0 {
			t.Errorf("entry %d does not balance: %s", entry, text)
		}
		if text != "" {
			all = append(all, text)
		}
		text, sum = "", 0
	}
	for line, err := range books.Journal(t.Context(), db, p, now) {
		servers.NoError(t, err)
		if line.Entry != entry {
			end()
			if line.Entry != entry+1 || line.Line != 1 {
				t.Errorf("entry %d follows %d", line.Entry, entry)
			}
			entry, text = line.Entry, line.DocumentKind
		}
		sum += line.DebitMinor - line.CreditMinor
		text += fmt.Sprintf(" %s%+d", line.Account, line.DebitMinor-line.CreditMinor)
		if line.Adjusts != "" && line.Line == 1 {
			text += " adjusts"
		}
	}
	end()
	return all
}

// wants compares the entries with those of a story, without order: a day's are by document.
func wants(t *testing.T, db postgres.DB, p books.Period, want ...string) {
	t.Helper()
	left := entries(t, db, p)
	for _, w := range want {
		found := false
		for i, e := range left {
			if e == w {
				left, found = append(left[:i:i], left[i+1:]...), true
				break
			}
		}
		if !found {
			t.Errorf("no entry %q", w)
		}
	}
	for _, e := range left {
		t.Errorf("unwanted: %q", e)
	}
}

func cancelled(t *testing.T, db *pgxpool.Pool, campaign, purchase uuid.UUID, positions ...shape.Position) {
	t.Helper()
	refs := fixture.Accept(t, db, fixture.CancelRequestOf(t, campaign, sale.Cancellation{PurchaseID: purchase, Positions: positions, By: "app:test"}))
	_, err := fixture.Seller(db).Cancel(t.Context(), refs, sale.WaitForCampaign)
	servers.NoError(t, err)
}

// completed gives a campaign its result, as a draw does.
func completed(t *testing.T, db *pgxpool.Pool, campaign uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET state = 'drawing', draw_started_at = clock_timestamp() WHERE id = $1`, campaign)
	servers.Exec(t, db, `UPDATE campaigns SET state = 'completed', draw_completed_at = clock_timestamp() WHERE id = $1`, campaign)
}

func TestEveryWayOfPayingIsInTheJournal(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Wallet(t, db, "mina", 5000) // by a credit
	wallet := fixture.Complete(t, db, fixture.WalletRequest(t, campaign, "mina", 2, 2))[0].ID
	outside := fixture.Buy(t, db, campaign, "ole", 1, 1)
	card, _ := fixture.BuyByCard(t, db, campaign, "pia", 4, 2)
	price := func(id uuid.UUID) int64 {
		return servers.Value[int64](t, db, `SELECT amount FROM purchases WHERE id = $1`, id)
	}
	sold := []string{
		"ledger_entry cash_outside+5000 wallet_liability-5000",
		fmt.Sprintf("purchase wallet_liability%+d unearned%+d", price(wallet), -price(wallet)),
		fmt.Sprintf("purchase cash_outside%+d unearned%+d", price(outside), -price(outside)),
		fmt.Sprintf("payment receivable%+d unearned%+d", price(card), -price(card)),
	}
	wants(t, db, around, sold...)

	cancelled(t, db, campaign, wallet)
	cancelled(t, db, campaign, outside)
	sold = append(sold, fmt.Sprintf("refund unearned%+d wallet_liability%+d", price(wallet), -price(wallet)),
		fmt.Sprintf("refund unearned%+d refunds_payable%+d", price(outside), -price(outside)))
	wants(t, db, around, sold...)

	fixture.Sound(t, db)
	completed(t, db, campaign)
	sold = append(sold, fmt.Sprintf("campaign unearned%+d sales%+d", price(card), -price(card)))
	wants(t, db, around, sold...)

	servers.Exec(t, db, `UPDATE refunds SET state = 'resolved', resolved_by = 'app:test', resolve_reason = 'in cash', finished_at = clock_timestamp() WHERE method = 'external'`)
	servers.Exec(t, db, `INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
		SELECT $1, id, campaign_id, user_id, 'card', 100, currency, 'out-of-band', 'succeeded', 're_1', clock_timestamp() FROM purchases WHERE id = $2`, uuidv7.New(), card)
	sold = append(sold, fmt.Sprintf("refund refunds_payable%+d cash_outside%+d", price(outside), -price(outside)), "refund sales+100 receivable-100")
	wants(t, db, around, sold...)
}

// A refund by card is payable, then made; when it fails after all it is payable again, until an operator makes it by hand.
func TestARefundThatFailsIsPayableAgain(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(3))
	card, _ := fixture.BuyByCard(t, db, campaign, "pia", 2, 2)
	cancelled(t, db, campaign, card)
	of := func(set string) {
		servers.Exec(t, db, `UPDATE refunds SET `+set+` WHERE purchase_id = $1`, card)
	}
	of(`state = 'pending', provider_id = 're_1'`)
	of(`state = 'succeeded', finished_at = clock_timestamp()`)
	of(`state = 'failed', failure = 'closed account'`)
	of(`state = 'resolved', amount = 300, resolved_by = 'operator:ops', resolve_reason = 'by bank'`)
	wants(t, db, around, "payment receivable+400 unearned-400",
		"refund unearned+400 refunds_payable-400", "refund refunds_payable+400 receivable-400", "refund receivable+400 refunds_payable-400",
		"refund refunds_payable+100 unearned-100", "refund refunds_payable+300 cash_outside-300")
}

// Whatever comes first, money that a bank has taken and that was given back by hand counts once, as far as it is more than was paid.
func TestWhatADisputeHasTakenIsNotPaidAgain(t *testing.T) {
	t.Parallel()
	const (
		opened    = `UPDATE payments SET disputed_at = clock_timestamp()`
		lost      = `UPDATE payments SET amount_disputed = 300`
		succeeded = `UPDATE refunds SET state = 'succeeded', provider_id = 're_1', finished_at = clock_timestamp()`
		failed    = `UPDATE refunds SET state = 'failed', failure = 'disputed'`
		resolved  = `UPDATE refunds SET state = 'resolved', resolved_by = 'operator:ops', resolve_reason = 'the buyer has it', finished_at = coalesce(finished_at, clock_timestamp())`
	)
	for name, c := range map[string]struct {
		steps    []string
		once     []string
		refunded money.Amount
		wrong    bool // the buyer has more than was paid
	}{
		"lost, then by hand":        {[]string{opened, lost, failed, resolved}, []string{"payment cash_outside+300 disputes-300"}, 100, false},
		"by hand, then lost":        {[]string{opened, failed, resolved, lost}, []string{"payment cash_outside+300 disputes-300"}, 100, false},
		"by hand before":            {[]string{failed, resolved, opened, lost}, nil, 400, true},
		"it had succeeded":          {[]string{succeeded, failed, opened, lost, resolved}, []string{"payment cash_outside+300 disputes-300"}, 100, false},
		"the provider has made it":  {[]string{succeeded, opened, lost}, nil, 400, true},
		"the rest of what was paid": {[]string{`UPDATE refunds SET amount = 100`, opened, lost, failed, resolved}, nil, 100, false},
		"a loss that changes": {
			[]string{opened, failed, resolved, lost, `UPDATE payments SET amount_disputed = 500`, `UPDATE payments SET amount_disputed = 50`},
			[]string{"payment cash_outside+300 disputes-300", "payment cash_outside+100 disputes-100", "payment disputes+350 cash_outside-350"}, 350, false,
		},
	} {
		db := servers.DB(t)
		campaign := fixture.Campaign(t, db, fixture.Draft(3))
		card, _ := fixture.BuyByCard(t, db, campaign, "pia", 2, 2)
		cancelled(t, db, campaign, card)
		for _, step := range c.steps {
			servers.Exec(t, db, step)
		}
		var once []string
		for _, e := range entries(t, db, around) {
			if strings.HasPrefix(e, "payment ") && strings.Contains(e, "disputes") {
				once = append(once, e)
			}
		}
		if !slices.Equal(once, c.once) {
			t.Errorf("%s: %q, want %q", name, once, c.once)
		}
		p, _, err := payment.Get(t.Context(), db, card)
		servers.NoError(t, err)
		all, err := payment.RefundsOfPurchases(t.Context(), db, []uuid.UUID{card})
		servers.NoError(t, err)
		if got := all[card][0].Amount - p.Overlap; got != c.refunded {
			t.Errorf("%s: refunded %d, want %d", name, got, c.refunded)
		}
		servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			wrong, err := payment.TooMuchBack(t.Context(), tx, card)
			if (wrong != "") != c.wrong {
				t.Errorf("%s: %q", name, wrong)
			}
			return err
		}))
	}
}

func TestDisputesAndTheProvidersBalanceAreInTheJournal(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(3))
	card, _ := fixture.BuyByCard(t, db, campaign, "pia", 2, 2)
	servers.Exec(t, db, `INSERT INTO disputes (id, purchase_id, status, reason, refundable, lost, amount, currency, fee, fee_currency)
		VALUES ('du_1', $1, 'warning_needs_response', 'fraudulent', true, false, 400, 'JPY', 0, '')`, card)
	of := func(set string) { servers.Exec(t, db, `UPDATE disputes SET `+set) }
	of(`refundable = false, status = 'warning_under_review'`) // it was refunded instead: the bank takes nothing
	of(`status = 'needs_response', refundable = false, fee = 15, fee_currency = 'USD'`)
	of(`status = 'under_review'`)
	of(`status = 'won', refundable = true, closed_at = clock_timestamp()`)
	of(`status = 'lost', refundable = false, lost = true`)
	of(`amount = 300, fee = 20`)
	put := func(id, category string, amount, fee int64, currency string, source int64) {
		servers.Exec(t, db, `
			INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, created_at, available_on, intent_id, source_amount, source_currency)
			SELECT $1, (clock_timestamp() AT TIME ZONE 'UTC')::date, $2::text, $2, true, $3::bigint, $4, $5::bigint, $3::bigint - $5::bigint, clock_timestamp(), clock_timestamp(), intent_id, nullif($6::bigint, 0), CASE WHEN $6::bigint <> 0 THEN 'JPY' END FROM payments`,
			id, category, amount, currency, fee, source)
	}
	put("txn_1", "charge", 260, 12, "USD", 400)
	put("txn_2", "payout", -200, 0, "USD", 0)
	put("txn_3", "payout_reversal", 200, 0, "USD", 0)
	put("txn_4", "fee", -7, 0, "USD", 0)
	put("txn_5", "topup", 50, 0, "USD", 0)
	put("txn_6", "dispute", -260, 15, "USD", 400)
	put("txn_7", "charge", 400, 9, "JPY", 400)
	wants(t, db, around, "payment receivable+400 unearned-400",
		"dispute disputes+400 receivable-400", "dispute fees+15 receivable-15", "dispute receivable+400 disputes-400", "dispute disputes+400 receivable-400",
		"dispute receivable+100 disputes-100", "dispute fees+5 receivable-5",
		"balance_transaction fees+12 receivable-12", "balance_transaction exchange+400 receivable-400", "balance_transaction receivable+260 exchange-260",
		"balance_transaction bank+200 receivable-200", "balance_transaction receivable+200 bank-200", "balance_transaction fees+7 receivable-7",
		"balance_transaction receivable+50 provider_adjustments-50",
		"balance_transaction receivable+400 exchange-400", "balance_transaction exchange+260 receivable-260", "balance_transaction fees+9 receivable-9")
}

// The id of a job that has waited for long is not near its sale.
func TestALateSaleIsInTheJournalOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(3))
	for i, ago := range []time.Duration{59 * time.Minute, 61 * time.Minute, 5 * 24 * time.Hour} {
		request := fixture.PurchaseRequest(t, campaign, fmt.Sprint("user-", i), 1+i, 1)
		request.ID = uuidv7.FirstAt(time.Now().Add(-ago))
		request.ID[15] = byte(i)
		fixture.Complete(t, db, request)
	}
	if n := len(entries(t, db, around)); n != 3 {
		t.Errorf("%d entries of 3 sales", n)
	}
	if n := servers.Value[int](t, db, `SELECT count(*)::int FROM book_facts`); n != 2 {
		t.Errorf("%d late sales", n)
	}
	completed(t, db, campaign)
	total := servers.Value[int64](t, db, `SELECT sum(amount)::bigint FROM purchases`)
	if all := strings.Join(entries(t, db, around), "\n"); !strings.Contains(all, fmt.Sprintf("campaign unearned%+d sales%+d", total, -total)) {
		t.Error(all)
	}
}

// Days are those of the zone, also where the clock changes.
func TestAPeriodHasTheDaysOfItsZone(t *testing.T) {
	for _, c := range []struct{ zone, from, to, want string }{
		{"Europe/Berlin", "2026-10-24", "2026-10-27", "24h0m0s 25h0m0s 24h0m0s"},
		{"Europe/Berlin", "2026-03-28", "2026-03-31", "24h0m0s 23h0m0s 24h0m0s"},
		{"America/Santiago", "2026-09-05", "2026-09-08", "24h0m0s 23h0m0s 24h0m0s"}, // there is no midnight on the 6th
		{"Pacific/Apia", "2011-12-29", "2012-01-01", "24h0m0s 24h0m0s"},             // there is no 30th
		{"Asia/Tokyo", "2026-11-01", "2026-11-02", "24h0m0s"},
	} {
		p, err := books.ParsePeriod(c.from, c.to, c.zone)
		servers.NoError(t, err)
		var got []string
		end := p.From
		for day := range p.Days() {
			if !day.From.Equal(end) {
				t.Errorf("%s: a day begins at %s, and the one before ends at %s", c.zone, day.From, end)
			}
			got, end = append(got, day.To.Sub(day.From).String()), day.To
		}
		if text := strings.Join(got, " "); text != c.want || !end.Equal(p.To) {
			t.Errorf("%s: %s until %s, want %s", c.zone, text, end, c.want)
		}
	}
	for _, bad := range [][3]string{{"2026-11-01", "2026-11-01", "UTC"}, {"2026-11-01", "2126-11-02", "UTC"}, {"2026-11-01", "2026-12-01", "Tokyo"}, {"2026-11-01", "2026-12-01", "Local"}, {"1.11.2026", "2026-12-01", ""}, {"", "", ""}} {
		if _, err := books.ParsePeriod(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%v is a period", bad)
		}
	}
}
