package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"triprize/devkit/devstack"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
	"triprize/migrations"
)

func TestCheckRefusesAnOlderDatabaseWithWhatToDo(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	up(t, m)
	if _, err := m.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	newest, err := schema.Newest()
	if err != nil || newest != version(t, 1) {
		t.Fatalf("the newest is %d, %v", newest, err)
	}
	err = schema.Check(t.Context(), db)
	if !errors.Is(err, schema.ErrOld) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"triprize migrate up", fmt.Sprintf("version %d", version(t, 2)), fmt.Sprintf("needs %d", newest)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// version returns the number of a migration, counted from the last. Numbers may be left out.
func version(t *testing.T, fromLast int) (n int64) {
	t.Helper()
	names := files(t)
	if _, err := fmt.Sscanf(names[len(names)-fromLast], "%05d_", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCheckPassesADatabaseThatIsNewer(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	newest, err := schema.Newest()
	if err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, db, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, newest+1)
	if err := schema.Check(t.Context(), db); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseThatIsAwayIsNotOld(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	settings := servers.Defaults(t)
	settings.Postgres.URL = "postgres://user@" + address + "/nowhere"
	if err := schema.Check(t.Context(), servers.Pool(t, settings)); err == nil || errors.Is(err, schema.ErrOld) {
		t.Errorf("got %v", err)
	}
}

func TestAClosedMigratorLeavesThePoolOpen(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	m, err := schema.New(db)
	if err != nil {
		t.Fatal(err)
	}
	up(t, m)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if n := db.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
	handle := stdlib.OpenDBFromPool(db)
	if m, err = schema.NewOn(handle, migrations.Files); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := handle.PingContext(t.Context()); err == nil {
		t.Error("a handle that was given away is still open")
	}
}
