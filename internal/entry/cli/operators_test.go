package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// database is a fresh database that the tool's commands use, and all that they are told.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	settings := servers.Settings(t)
	t.Setenv("TRIPRIZE_POSTGRES_URL", settings.Postgres.URL)
	return servers.Pool(t, settings)
}

func execute(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	servers.Exec(t, db, sql, args...)
}

// succeeds runs the tool, which must succeed and print what is wanted.
func succeeds(t *testing.T, want string, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, status := run(args...)
	if status != 0 || !strings.Contains(stdout, want) {
		t.Errorf("%v: status %d, %s%s", args, status, stdout, stderr)
	}
	return stdout
}

// Operators' commands need the address of an api and a key, and no setting of the server.
func TestOperatorsWorkAtTheAPI(t *testing.T) {
	if _, stderr, status := run("payments", "list"); status != 1 || !strings.Contains(stderr, "TRIPRIZE_API and TRIPRIZE_KEY are required") {
		t.Errorf("without an api: status %d, %s", status, stderr)
	}
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	t.Setenv("TRIPRIZE_API", s.URLs[0])
	t.Setenv("TRIPRIZE_KEY", s.Operator)
	succeeds(t, "PURCHASE", "payments", "list", "--waiting-for", "operator")
	succeeds(t, `{"refunds":[]}`, "refunds", "list", "--json")
	nobody := uuid.NewString()
	for _, refused := range []string{"payments retry " + nobody, "payments resolve " + nobody + " --outcome paid --reason r", "refunds retry " + nobody,
		"refunds resolve " + nobody + " --reason r", "refunds resolve-campaign " + nobody + " --reason r", "webhooks deliveries " + nobody} {
		if stdout, stderr, status := run(strings.Fields(refused)...); status != 1 || stdout != "" || !strings.Contains(stderr, "404 not-found") {
			t.Errorf("%s: status %d, %s%s", refused, status, stdout, stderr)
		}
	}
	if _, stderr, status := run("payments", "list", "--waiting-for", "godot"); status != 1 || !strings.Contains(stderr, "400 invalid-request") {
		t.Errorf("waiting for nobody: status %d, %s", status, stderr)
	}

	id := uuid.NewString()
	execute(t, s.DB, `INSERT INTO payment_differences (id, kind, object_id, here_amount, here_currency, detail) VALUES
		($1, 'unknown-there', 'pi_lost', 1250, 'EUR', E'settled\nhere'), (gen_random_uuid(), 'unknown-there', 'pi_too', 500, 'JPY', 'settled here')`, id)
	list := succeeds(t, id, "reconciliation", "list")
	for _, want := range []string{"pi_lost", "12.50 EUR", "settled here", " - "} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in %s", want, list)
		}
	}
	if stdout, stderr, status := run("reconciliation", "list", "--limit", "1"); status != 0 || strings.Count(stdout, "pi_") != 1 || stderr != "there are more than 1; --limit may be up to 10000\n" {
		t.Errorf("of more than the limit: status %d, %s%s", status, stdout, stderr)
	}
	succeeds(t, `"reason":"paid in cash"`, "reconciliation", "explain", id, "--reason", "paid in cash")
	if open := succeeds(t, "pi_too", "reconciliation", "list"); strings.Contains(open, id) {
		t.Errorf("it is still open: %s", open)
	}
	succeeds(t, id, "reconciliation", "list", "--state", "all", "--json")

	var made struct {
		ID     uuid.UUID
		Secret string
	}
	created := succeeds(t, "whsec_", "webhooks", "create", "--client", "shop", "--url", "https://shop.example/hooks", "--events", "purchase.*,campaign.drawn")
	if err := json.Unmarshal([]byte(created), &made); err != nil || made.Secret == "" {
		t.Fatal(err, created)
	}
	endpoint := made.ID.String()
	succeeds(t, "purchase.*,campaign.drawn", "webhooks", "list")
	succeeds(t, `"state":"disabled"`, "webhooks", "disable", endpoint)
	succeeds(t, endpoint, "webhooks", "enable", endpoint)
	succeeds(t, "EVENT", "webhooks", "deliveries", endpoint, "--state", "failed")
	succeeds(t, `"replayed":0`, "webhooks", "replay", endpoint, "--from", "2026-07-01T00:00:00Z", "--to", "2026-07-02T00:00:00Z")
}

func TestTheProvidersBalanceIsReportedByDay(t *testing.T) {
	db := database(t)
	execute(t, db, `INSERT INTO reconciled_days (day, lease_until, listed_until, foreign_ones, done_at) VALUES ('2026-11-01', now(), now(), 7, now()), ('2026-11-02', now(), now(), 0, NULL),
		('2026-10-31', now(), now(), 0, now())`)
	execute(t, db, `INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, created_at, available_on, source_amount, source_currency)
		SELECT 'txn_' || n, '2026-11-01', 'charge', 'charge', true, 325, 'USD', 11, 314, now(), now(), 500, 'JPY' FROM generate_series(1, 2) n`)
	for _, wrong := range []string{"--from 2026-11-01", "--from 2026-11-02 --to 2026-11-01"} {
		if stdout, _, status := run(append([]string{"reconciliation", "report"}, strings.Fields(wrong)...)...); status != 1 || stdout != "" {
			t.Errorf("%q: status %d, %s", wrong, status, stdout)
		}
	}
	stdout := succeeds(t, "2026-11-01", "reconciliation", "report", "--from", "2026-10-31", "--to", "2026-11-03")
	if want := "2026-10-31 nothing 0 2026-11-01 charge 2 1000 JPY 650 USD 22 628 2026-11-01 of others 7 2026-11-02 not compared yet"; !strings.HasSuffix(strings.Join(strings.Fields(stdout), " "), want) {
		t.Errorf("%s", stdout)
	}
	succeeds(t, `"day":"2026-11-02","done":false,"foreign":0,"sums":[]`, "reconciliation", "report", "--from", "2026-11-01", "--to", "2026-11-03", "--json")
}
