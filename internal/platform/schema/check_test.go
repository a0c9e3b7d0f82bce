package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"triprize/devkit/devstack"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/servers"
	"triprize/migrations"
)

// A rolling upgrade: the new version may run already.
func TestADatabaseThatIsNewerPassesAndIsNotTakenBack(t *testing.T) {
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
	if _, _, err := migrator(t, db).Losses(t.Context()); err == nil || !strings.Contains(err.Error(), "use the program that applied it") {
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
