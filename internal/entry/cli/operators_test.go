package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/store/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// database is a fresh database that the tool's commands use.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	settings := servers.Settings(t)
	t.Setenv("TRIPRIZE_POSTGRES_URL", settings.Postgres.URL)
	t.Setenv("TRIPRIZE_REDIS_URL", settings.Redis.URL)
	return servers.Pool(t, settings)
}

func execute(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	servers.Exec(t, db, sql, args...)
}

// returned is a card refund in a state, with a failure.
func returned(t *testing.T, db *pgxpool.Pool, campaign uuid.UUID, state, failure string) (id, purchase uuid.UUID) {
	t.Helper()
	purchase, _ = fixture.BuyByCard(t, db, campaign, "mina", 0, 1)
	id = uuid.New()
	execute(t, db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, failure)
		SELECT $1, id, 1, campaign_id, user_id, 'card', 1250, 'EUR', 'cancelled', $3, $4 FROM purchases WHERE id = $2`, id, purchase, state, failure)
	execute(t, db, `UPDATE purchases SET state = 'refunding' WHERE id = $1`, purchase)
	return id, purchase
}

func TestTheRefundsThatWaitForAnOperatorAreListedAndEndedByTheTool(t *testing.T) {
	db := database(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	failed, bought := returned(t, db, campaign, "failed", "expired\nor\tcanceled")
	canceled, _ := returned(t, db, campaign, "canceled", "")
	pending, _ := returned(t, db, campaign, "pending", "")
	asked, _ := returned(t, db, campaign, "requires_action", "")

	stdout, stderr, status := run("refunds", "list")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if status != 0 || stderr != "" || len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "REFUND PURCHASE REFERENCE AMOUNT STATE CREATED REASON" ||
		strings.Contains(stdout, pending.String()) || strings.Contains(stdout, asked.String()) {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	for _, want := range []string{failed.String(), bought.String(), "12.50 EUR", "expired or canceled"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%s is not in %s", want, stdout)
		}
	}
	if stdout, stderr, status := run("refunds", "list", "--limit", "1", "--json"); status != 0 || strings.Count(stdout, `"purchase_id"`) != 1 || stderr != "there are more than these 1: raise --limit\n" {
		t.Errorf("of more than the limit: status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := run("refunds", "list", "--limit", "2"); status != 0 || stderr != "" {
		t.Errorf("of as many as the limit: status %d, %s", status, stderr)
	}

	for _, args := range [][]string{{"retry", asked.String(), "--by", "otto"}, {"resolve", pending.String(), "--by", "otto", "--reason", "r"}} {
		if stdout, stderr, status := run(append([]string{"refunds"}, args...)...); status != 1 || stdout != "" || !strings.Contains(stderr, "state-conflict") {
			t.Errorf("%v: status %d, %s%s", args, status, stdout, stderr)
		}
	}
	if stdout, stderr, status := run("refunds", "retry", canceled.String(), "--by", "otto"); status != 0 || !strings.Contains(stdout, `"state":"open"`) || strings.Contains(stdout, "waiting_for") {
		t.Errorf("retry: status %d, %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = run("refunds", "resolve", failed.String(), "--by", "otto", "--reason", "by bank transfer")
	var resolved struct {
		State      string
		Resolution struct{ By, Reason string }
	}
	if err := json.Unmarshal([]byte(stdout), &resolved); err != nil || status != 0 || resolved.State != "resolved" || resolved.Resolution.By != "operator:triprize/otto" ||
		resolved.Resolution.Reason != "by bank transfer" {
		t.Errorf("settle: status %d, %v, %s%s", status, err, stdout, stderr)
	}
	if stdout, _, _ := run("refunds", "list", "--json"); stdout != "{\"refunds\":[]}\n" {
		t.Errorf("then wait %s", stdout)
	}
}

func TestThePaymentsThatWaitAreListedAndEndedByTheTool(t *testing.T) {
	db := database(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	var all []string
	for range 2 {
		bought, _ := fixture.Reserve(t, db, campaign, "mina", 1, time.Hour)
		fixture.Advance(t, db, bought, payment.Capturing)
		execute(t, db, `UPDATE payments SET waiting_for = $2 WHERE purchase_id = $1`, bought, payment.WaitsForOperator)
		all = append(all, bought.String())
	}
	stdout, stderr, status := run("payments", "list")
	header, _, _ := strings.Cut(stdout, "\n")
	if status != 0 || stderr != "" || strings.Join(strings.Fields(header), " ") != "PURCHASE INTENT AMOUNT PHASE STATUS WAITING FOR CREATED REASON" ||
		strings.Count(stdout, payment.WaitsForOperator.Text()) != 2 || !strings.Contains(stdout, all[0]) || !strings.Contains(stdout, all[1]) {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status := run("payments", "list", "--limit", "1"); status != 0 || !strings.Contains(stdout, all[0]) || strings.Contains(stdout, all[1]) ||
		stderr != "there are more than these 1: raise --limit\n" {
		t.Errorf("of more than the limit: status %d, %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = run("payments", "resolve", all[0], "--outcome", "unpaid", "--reason", "the intent is gone", "--by", "otto")
	var resolved struct {
		Resolution struct{ Outcome, By, Reason string }
	}
	if err := json.Unmarshal([]byte(stdout), &resolved); err != nil || status != 0 || resolved.Resolution.Outcome != "unpaid" ||
		resolved.Resolution.By != "operator:triprize/otto" || resolved.Resolution.Reason != "the intent is gone" {
		t.Errorf("settle: status %d, %v, %s%s", status, err, stdout, stderr)
	}
}

func TestDifferencesAreListedExplainedAndReportedByTheTool(t *testing.T) {
	db := database(t)
	id := uuid.NewString()
	execute(t, db, `INSERT INTO payment_differences (id, kind, object_id, here_amount, here_currency, detail) VALUES ($1, 'unknown-there', 'pi_lost', 500, 'JPY', 'settled here')`, id)
	execute(t, db, `INSERT INTO reconciled_days (day, lease_until, listed_until, foreign_ones, done_at) VALUES ('2026-11-01', now(), now(), 7, now()), ('2026-11-02', now(), now(), 0, NULL),
		('2026-10-31', now(), now(), 0, now())`)
	execute(t, db, `INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, created_at, available_on, source_amount, source_currency)
		SELECT 'txn_' || n, '2026-11-01', 'charge', 'charge', true, 325, 'USD', 11, 314, now(), now(), 500, 'JPY' FROM generate_series(1, 2) n`)
	stdout, stderr, status := run("reconciliation", "list")
	if status != 0 || stderr != "" || !strings.Contains(stdout, id) || !strings.Contains(stdout, "pi_lost") || !strings.Contains(stdout, "settled here") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	for _, wrong := range [][]string{{"list", "--state", "lost"}, {"explain", id, "--reason", "r"}, {"explain", id, "--by", "otto"}, {"explain", "x", "--by", "otto", "--reason", "r"},
		{"report", "--from", "2026-11-01"}, {"report", "--from", "2026-11-02", "--to", "2026-11-01"}} {
		if stdout, _, status := run(append([]string{"reconciliation"}, wrong...)...); status != 1 || stdout != "" {
			t.Errorf("%q: status %d, %s", wrong, status, stdout)
		}
	}
	if stdout, stderr, status := run("reconciliation", "explain", id, "--by", "otto", "--reason", "paid in cash"); status != 0 || !strings.Contains(stdout, `"operator:triprize/otto"`) {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if stdout, _, _ := run("reconciliation", "list"); strings.Contains(stdout, id) {
		t.Errorf("it is still open: %s", stdout)
	}
	if stdout, _, _ := run("reconciliation", "list", "--state", "all", "--json"); !strings.Contains(stdout, `"explanation":"paid in cash"`) {
		t.Errorf("it is not kept: %s", stdout)
	}
	stdout, stderr, status = run("reconciliation", "report", "--from", "2026-10-31", "--to", "2026-11-03")
	if want := "2026-10-31 nothing 0 2026-11-01 charge 2 1000 JPY 650 USD 22 628 2026-11-01 of others 7 2026-11-02 not compared yet"; status != 0 || !strings.HasSuffix(strings.Join(strings.Fields(stdout), " "), want) {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if stdout, _, _ := run("reconciliation", "report", "--from", "2026-11-01", "--to", "2026-11-03", "--json"); !strings.Contains(stdout, `"day":"2026-11-02","done":false,"foreign":0,"sums":[]`) {
		t.Errorf("%s", stdout)
	}
}

func TestAListAtItsLongestSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	var news strings.Builder
	if list := cut(make([]int, maxList+1), maxList, &news); len(list) != maxList || news.String() != "there are more than these 10000\n" {
		t.Errorf("%d, %s", len(list), news.String())
	}
}
