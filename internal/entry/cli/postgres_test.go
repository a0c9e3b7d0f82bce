package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"triprize/internal/entry/upkeep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

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

// The URL of Postgres is all that these commands are told.
func TestMigrationsAreAppliedAndRevertedByTheTool(t *testing.T) {
	db := database(t)
	newest := servers.Value[string](t, db, `SELECT lpad(max(version_id)::text, 5, '0') FROM goose_db_version`)
	says(t, 0, "migrate up", "up to date")
	says(t, 0, "migrate down", newest)
	says(t, 0, "migrate status", "pending")
	says(t, 0, "migrate up", newest)
	execute(t, db, `CREATE TABLE kept AS SELECT * FROM goose_db_version`)
	execute(t, db, `DELETE FROM goose_db_version WHERE version_id > 107`) // the migration with the wallets is the newest one
	execute(t, db, `INSERT INTO wallets (id, owner_id, client, currency) VALUES (gen_random_uuid(), 'alice', 'shop', 'JPY')`)
	says(t, 1, "migrate down", "wallets: 1 row", "--destroy-data")
	execute(t, db, `INSERT INTO goose_db_version SELECT * FROM kept WHERE version_id > 107`)
	says(t, 1, "migrate sideways", `"sideways" is not a command`)
	says(t, 0, "audit")
}

func TestAKeyIsMadeListedAndRevokedByTheTool(t *testing.T) {
	database(t)
	key := strings.Split(strings.TrimSpace(says(t, 0, "key create --role app --client shop-1", "tp_")), "_")
	if list := says(t, 0, "key list", key[1], "never"); strings.Contains(list, key[2]) {
		t.Errorf("the list shows the secret: %s", list)
	}
	says(t, 0, "key revoke "+key[1])
	says(t, 0, "key list --json", `"revoked_at":"20`)
}

func TestTheAuditFindsWhatIsBrokenAndSaysSo(t *testing.T) {
	db := database(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.Sell(t, db, id, 2)
	says(t, 0, "audit", "invariants hold")
	execute(t, db, `UPDATE campaigns SET positions_sold = 3 WHERE id = $1`, id)
	says(t, 1, "audit", "counts 3 sold", "1 violations")
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
	if _, err := upkeep.NewAuditor(db, servers.Logger(t)).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(t, 1, "audit --stored", "counters of "+id.String(), "counts 3 sold", "1 violations")
	says(t, 1, "audit --stored --json", `"check":"counters"`)
	says(t, 1, "audit --limit 0", "--limit")
}
