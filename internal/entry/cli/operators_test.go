package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
	says(t, 1, "user mina", "TRIPRIZE_API and TRIPRIZE_KEY are required")
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_APPROVALS_REQUIRED=wallet.credit", "TRIPRIZE_CONSOLE_OIDC_ISSUER=https://accounts.test",
		"TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=triprize", "TRIPRIZE_CONSOLE_OIDC_ROLES_APPROVER=finance"}})
	t.Setenv("TRIPRIZE_API", s.URLs[0])
	t.Setenv("TRIPRIZE_KEY", s.Operator)
	says(t, 0, "campaign "+s.Campaign(3).String(), "state: active", "price: 100 # 100 JPY")
	says(t, 0, "user mina", "purchases: []", "holds: []", "wallets: []")
	says(t, 1, "status", "no_worker") // there is none
	asked := s.Do(0, s.Operator, "POST", "/v1/wallets", map[string]string{"Idempotency-Key": "k"}, fleet.Fields{"owner_id": "mina", "currency": "JPY", "initial_balance": 5})
	request := asked.ID.String()
	says(t, 0, "approvals", request, "wallet.credit", "mina")
	says(t, 0, "approvals show "+request, "state: pending", "value: 5 JPY")
	says(t, 1, "approvals withdraw "+request, "reason")
	says(t, 0, "approvals withdraw "+request+" --reason mistake", "state: withdrawn")
	says(t, 1, "approvals withdraw "+request+" --reason mistake", "is withdrawn")
	says(t, 0, "approvals --state withdrawn", request)
}

// The URL of Postgres is all that these commands are told.
func TestMigrationsAreAppliedAndRevertedByTheTool(t *testing.T) {
	db := database(t)
	newest := servers.Value[string](t, db, `SELECT lpad(max(version_id)::text, 5, '0') FROM goose_db_version`)
	says(t, 0, "migrate up", "up to date")
	says(t, 0, "migrate down", newest)
	says(t, 0, "migrate status", "pending")
	says(t, 0, "migrate up", newest)
	if got := servers.Value[string](t, db, `SELECT string_agg(operation || ' ' || target, ', ') FROM audit_trail`); got != "migrate down schema, migrate up schema" {
		t.Errorf("the audit trail has %s", got)
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
