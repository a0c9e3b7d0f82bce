package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/entry/upkeep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// database is a fresh database that the tool's commands use, and all that they are told but bounds that no machine is too slow for.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	settings := servers.Patient(servers.Settings(t))
	t.Setenv("TRIPRIZE_POSTGRES_URL", settings.Postgres.URL)
	t.Setenv("TRIPRIZE_POSTGRES_CONNECT_TIMEOUT", "10m")
	t.Setenv("TRIPRIZE_POSTGRES_STATEMENT_TIMEOUT", "10m")
	return servers.Pool(t, settings)
}

// says runs the tool, which must end with a status and print all that is wanted, to whichever output.
func says(t *testing.T, status int, line string, wanted ...string) (stdout string) {
	t.Helper()
	stdout, stderr, got := run(strings.Fields(line)...)
	for _, want := range append(wanted, "") {
		if got != status || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: status %d, %s%s, want %q", line, got, stdout, stderr, want)
		}
	}
	return stdout
}

// Operators' commands need the address of an api and a key, and no setting of the server.
func TestOperatorsWorkAtTheAPI(t *testing.T) {
	says(t, 1, "payments list", "TRIPRIZE_API and TRIPRIZE_KEY are required")
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	t.Setenv("TRIPRIZE_API", s.URLs[0])
	t.Setenv("TRIPRIZE_KEY", s.Operator)
	says(t, 0, "payments list --waiting-for operator", "PURCHASE")
	says(t, 0, "refunds list --json", `{"refunds":[]}`)
	says(t, 1, "refunds resolve-campaign "+s.Campaign(3).String()+" --amount 1 --reason r", "0 refunds of the campaign wait for an operator, over 0 together, and not 1: nothing was done")
	nobody := uuid.NewString()
	for _, refused := range []string{"payments retry " + nobody, "payments resolve " + nobody + " --outcome paid --version 1 --reason r", "refunds retry " + nobody,
		"refunds resolve " + nobody + " --amount 1 --reason r", "refunds resolve-campaign " + nobody + " --amount 1 --reason r", "webhooks deliveries " + nobody} {
		if stdout := says(t, 1, refused, "404 not-found"); stdout != "" {
			t.Errorf("%s: %s", refused, stdout)
		}
	}
	says(t, 1, "payments list --waiting-for godot", "400 invalid-request")
	says(t, 0, "campaign "+s.Campaign(3).String(), "state: active", "price: 100 # 100 JPY")
	says(t, 0, "user mina", "purchases: []", "holds: []", "wallets: []")
	says(t, 1, "status", "no_worker") // there is none

	id := uuid.NewString()
	servers.Exec(t, s.DB, `INSERT INTO payment_discrepancies (id, kind, object_id, here_amount, here_currency, detail) VALUES
		($1, 'unknown-there', 'pi_lost', 1250, 'EUR', E'settled\nhere'), (gen_random_uuid(), 'unknown-there', 'pi_too', 500, 'JPY', 'settled here')`, id)
	says(t, 0, "reconciliation list", id, "pi_lost", "12.50 EUR", "settled here", " - ")
	if stdout := says(t, 0, "reconciliation list --limit 1", "there are more than 1; --limit may be up to 10000\n"); strings.Count(stdout, "pi_") != 1 {
		t.Errorf("of more than the limit: %s", stdout)
	}
	says(t, 0, "reconciliation explain "+id+" --version 0 --reason cash", `"reason":"cash"`)
	if open := says(t, 0, "reconciliation list", "pi_too"); strings.Contains(open, id) {
		t.Errorf("it is still open: %s", open)
	}
	says(t, 0, "reconciliation list --state all --json", id)

	var made struct {
		ID     uuid.UUID
		Secret string
	}
	created := says(t, 0, "webhooks create --client shop --url https://shop.example/hooks --events purchase.*,campaign.drawn", "whsec_")
	if err := json.Unmarshal([]byte(created), &made); err != nil || made.Secret == "" {
		t.Fatal(err, created)
	}
	endpoint := made.ID.String()
	says(t, 0, "webhooks list", "purchase.*,campaign.drawn")
	says(t, 0, "webhooks disable "+endpoint, `"state":"disabled"`)
	says(t, 0, "webhooks enable "+endpoint, endpoint)
	says(t, 0, "webhooks deliveries "+endpoint+" --state failed", "EVENT")
	says(t, 0, "webhooks replay "+endpoint+" --from 2026-07-01T00:00:00Z --to 2026-07-02T00:00:00Z", `"replayed":0`)
}

func TestTheProvidersBalanceIsReportedByDay(t *testing.T) {
	db := database(t)
	servers.Exec(t, db, `INSERT INTO reconciled_days (day, lease_until, listed_until, foreign_ones, done_at) VALUES ('2026-11-01', now(), now(), 7, now()), ('2026-11-02', now(), now(), 0, NULL),
		('2026-10-31', now(), now(), 0, now())`)
	servers.Exec(t, db, `INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, created_at, available_on, source_amount, source_currency)
		SELECT 'txn_' || n, '2026-11-01', 'charge', 'charge', true, 325, 'USD', 11, 314, now(), now(), 500, 'JPY' FROM generate_series(1, 2) n`)
	for _, wrong := range []string{"--from 2026-11-01", "--from 2026-11-02 --to 2026-11-01", "--from 2026-11-01T00:00:00+09:00 --to 2026-11-02T00:00:00+09:00"} {
		if stdout := says(t, 1, "reconciliation report "+wrong); stdout != "" {
			t.Errorf("%q: %s", wrong, stdout)
		}
	}
	stdout := says(t, 0, "reconciliation report --from 2026-10-31 --to 2026-11-03")
	if want := "2026-10-31 nothing 0 2026-11-01 charge 2 1000 JPY 650 USD 22 628 2026-11-01 of others 7 2026-11-02 not compared yet"; !strings.HasSuffix(strings.Join(strings.Fields(stdout), " "), want) {
		t.Errorf("%s", stdout)
	}
	says(t, 0, "reconciliation report --from 2026-11-01 --to 2026-11-03 --json", `"day":"2026-11-02","done":false,"foreign":0,"sums":[]`)
}

// The URL of Postgres is all that these commands are told.
func TestMigrationsAreAppliedAndRevertedByTheTool(t *testing.T) {
	db := database(t)
	newest := servers.Value[string](t, db, `SELECT lpad(max(version_id)::text, 5, '0') FROM goose_db_version`)
	says(t, 0, "migrate up", "up to date")
	says(t, 0, "migrate down", newest)
	says(t, 0, "migrate status", "pending")
	says(t, 0, "migrate up", newest)
	if got := servers.Value[string](t, db, `SELECT string_agg(operation || ' ' || target, ', ') FROM audit_trail`); got != "migrate up schema" {
		t.Errorf("the audit trail has %s", got) // what reverts the trail is not in it
	}
	servers.Exec(t, db, `CREATE TABLE kept AS SELECT * FROM goose_db_version`)
	servers.Exec(t, db, `DELETE FROM goose_db_version WHERE version_id > 107`) // the migration with the wallets is the newest one
	servers.Exec(t, db, `INSERT INTO wallets (id, owner_id, client, currency) VALUES (gen_random_uuid(), 'alice', 'shop', 'JPY')`)
	says(t, 1, "migrate down", "wallets: 1 row", "--destroy-data")
	servers.Exec(t, db, `INSERT INTO goose_db_version SELECT * FROM kept WHERE version_id > 107`)
	says(t, 1, "migrate sideways", `"sideways" is not a command`)
	says(t, 0, "audit")
}

func TestAKeyIsMadeListedAndRevokedByTheTool(t *testing.T) {
	db := database(t)
	t.Setenv("TRIPRIZE_OPERATOR", "Ada")
	key := strings.Split(strings.TrimSpace(says(t, 0, "key create --role app --client shop-1", "tp_")), "_")
	made := time.Now().UTC().Format(time.DateOnly)
	if list := says(t, 0, "key list", "PREFIX        ROLE  CLIENT  CREATED              LAST USED  REVOKED\n"+key[1]+"  app   shop-1  "+made, "  never      -\n"); strings.Contains(list, key[2]) {
		t.Errorf("the list shows the secret: %s", list)
	}
	says(t, 0, "key revoke "+key[1])
	says(t, 0, "key list --json", `"revoked_at":"20`)
	says(t, 1, "key revoke 000000000000")
	got := servers.Value[string](t, db, `SELECT string_agg(concat_ws(' ', operator, client = current_user, via, operation, target = $1, after), '; ' ORDER BY id) FROM audit_trail`, key[1])
	if want := `Ada t cli key create t {"client":"shop-1","role":"app"}; Ada t cli key revoke t {"endpoints":0,"revoked":true,"successor":""}`; got != want {
		t.Errorf("the audit trail has %s, want %s", got, want)
	}
}

func TestTheAuditFindsWhatIsBrokenAndSaysSo(t *testing.T) {
	db := database(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.Sell(t, db, id, 2)
	says(t, 0, "audit", "invariants hold")
	servers.Exec(t, db, `UPDATE campaigns SET positions_sold = 3 WHERE id = $1`, id)
	says(t, 1, "audit", "counts 3 sold", "1 violation")
	var report struct {
		OK         bool
		Invariants int
		Violations []struct{ Invariant, Subject string }
	}
	text := says(t, 1, "audit --json")
	if err := json.Unmarshal([]byte(text), &report); err != nil || report.OK || report.Invariants < 20 || len(report.Violations) != 1 {
		t.Errorf("as JSON: %v, %s", err, text)
	}
	says(t, 0, "audit --stored", "no stored violations") // no audit has run
	_, err := upkeep.NewAuditor(db, servers.Logger(t)).Run(t.Context())
	servers.NoError(t, err)
	says(t, 1, "audit --stored", "counters of "+id.String(), "counts 3 sold", "1 violation")
	says(t, 1, "audit --stored --json", `"check":"counters"`)
	says(t, 1, "audit --limit 0", "--limit")
}

func TestNothingIsRevertedAgainstTheWillOfAnybody(t *testing.T) {
	t.Parallel()
	wallets := []string{"wallets: 3 rows", "holds.ends_at: 1 value"}
	for name, c := range map[string]struct {
		losses   []string
		destroy  bool
		reverted bool
		says     []string
	}{
		"nothing is lost":     {reverted: true, says: []string{"loses no row"}},
		"wallets are lost":    {losses: wallets, says: []string{"wallets: 3 rows", "holds.ends_at: 1 value", "--destroy-data", "docs/operations.md"}},
		"wallets may be lost": {losses: wallets, destroy: true, reverted: true, says: []string{"wallets: 3 rows", "docs/operations.md"}},
	} {
		out := new(bytes.Buffer)
		err := mayRevert("00107_wallets.sql", c.losses, out, c.destroy)
		if (err == nil) != c.reverted {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.says {
			if said := fmt.Sprint(out, err); !strings.Contains(said, want) {
				t.Errorf("%s: %q is not said:\n%s", name, want, said)
			}
		}
	}
}
