package schema_test

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"triprize/devkit/devstack"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/migrations"
)

func TestMain(m *testing.M) { servers.Main(m) }

// files returns the names of the embedded migrations, in order.
func files(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

// emptyDB returns a pool on a database without any table.
func emptyDB(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := servers.DB(t)
	servers.Exec(t, db, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
	settings := servers.Defaults(t)
	settings.Postgres.URL = db.Config().ConnString()
	return servers.Pool(t, settings) // that one has met the branch whose row is gone
}

func migrator(t *testing.T, db *pgxpool.Pool) *schema.Migrator {
	t.Helper()
	m, err := schema.New(db)
	servers.NoError(t, err)
	t.Cleanup(func() {
		servers.NoError(t, m.Close())
	})
	return m
}

// up migrates and returns what was done.
func up(t *testing.T, m *schema.Migrator) []string {
	t.Helper()
	done, err := m.Up(t.Context())
	servers.NoError(t, err)
	return done
}

// things lists the tables, functions and types of a database, but for goose's own.
func things(t *testing.T, db *pgxpool.Pool) []string {
	t.Helper()
	return servers.Value[[]string](t, db, `
		SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM (
			SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'goose_db_version%'
			UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace) all_names`)
}

// version returns the number of a migration.
func version(t *testing.T, file string) (n int64) {
	t.Helper()
	if _, err := fmt.Sscanf(file, "%05d_", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A database goes up, all the way down and up again, and is the same. Each version but the newest is refused
// with what to do.
func TestEveryMigrationIsAppliedOnceAndCanBeTakenBack(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m, names := migrator(t, db), files(t)
	last := len(names) - 1
	if newest, err := schema.Newest(); err != nil || newest != version(t, names[last]) {
		t.Fatalf("the newest is %d, %v", newest, err)
	}
	// expect checks that the first migrations are applied, and no others.
	expect := func(applied int) {
		t.Helper()
		lines, err := m.Status(t.Context())
		if err != nil || len(lines) != len(names) {
			t.Fatalf("%v, %v", lines, err)
		}
		for i, name := range names {
			fields := strings.Fields(lines[i])
			if want := map[bool]string{true: "applied", false: "pending"}[i < applied]; fields[0] != want || fields[1] != name || (len(fields) == 4) != (i < applied) {
				t.Errorf("line %d is %q, want %s %s", i, lines[i], want, name)
			}
		}
		err = schema.Check(t.Context(), db)
		if errors.Is(err, schema.ErrOld) != (applied <= last) || (err == nil) != (applied > last) {
			t.Errorf("with %d migrations: %v", applied, err)
		}
		if applied != last {
			return
		}
		for _, want := range []string{"triprize migrate up", fmt.Sprintf("version %d", version(t, names[last-1])), fmt.Sprintf("needs %d", version(t, names[last]))} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
	if err := schema.Check(t.Context(), db); !errors.Is(err, schema.ErrOld) {
		t.Errorf("without any table: %v", err)
	}
	expect(0)
	done := up(t, m)
	for i, name := range names {
		if len(done) != len(names) || !strings.Contains(done[i], name) {
			t.Fatalf("done is %q", done)
		}
	}
	expect(len(names))
	full := things(t, db)
	if again, other := up(t, m), up(t, migrator(t, db)); len(again)+len(other) != 0 {
		t.Errorf("done again: %v, %v", again, other)
	}
	fixture.Campaign(t, db, fixture.Draft(3)) // the program can work on it
	fixture.Sound(t, db)
	for i := range slices.Backward(names) {
		done, err := m.Down(t.Context())
		if err != nil || len(done) != 1 || !strings.Contains(done[0], names[i]) {
			t.Fatalf("taking back %s: %v, %v", names[i], done, err)
		}
		expect(i)
	}
	if done, err := m.Down(t.Context()); err != nil || len(done) != 0 {
		t.Errorf("taking back nothing: %v, %v", done, err)
	}
	if left := things(t, db); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if done := up(t, m); len(done) != len(names) {
		t.Errorf("applied again: %v", done)
	}
	if again := things(t, db); !slices.Equal(again, full) {
		t.Errorf("%v became %v", full, again)
	}
}

func TestTwoThatMigrateAtOnceBothSucceedAndApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	const processes = 3
	done := make([][]string, processes)
	var wg sync.WaitGroup
	for i := range processes {
		m := migrator(t, db)
		wg.Go(func() {
			var err error
			if done[i], err = m.Up(t.Context()); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, lines := range done {
		total += len(lines)
	}
	if total != len(files(t)) {
		t.Errorf("%d migrations applied of %d: %v", total, len(files(t)), done)
	}
	if locks := servers.Value[int](t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); locks != 0 {
		t.Errorf("%d locks are left", locks)
	}
}

// A rolling upgrade: the new version may run already.
func TestADatabaseThatIsNewerPassesAndIsNotTakenBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	newest, err := schema.Newest()
	servers.NoError(t, err)
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
	servers.NoError(t, err)
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
	servers.NoError(t, err)
	up(t, m)
	servers.NoError(t, m.Close())
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if n := db.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
}

// What a Down section drops is what the catalog has no more. What it changes or deletes in tables
// that stay, the catalog does not show.
func TestWhatTheDownOfEveryMigrationDropsIsNamedInIt(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	up(t, m)
	catalog := func() (all []string) {
		t.Helper()
		rows, err := db.Query(t.Context(), `
			SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
			UNION SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'`)
		if err == nil {
			all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		servers.NoError(t, err)
		return all
	}
	for _, name := range slices.Backward(files(t)) {
		text, err := fs.ReadFile(migrations.Files, name)
		servers.NoError(t, err)
		_, down, _ := strings.Cut(string(text), "-- +goose Down")
		named := schema.LostBy(string(text))
		if found := regexp.MustCompile(`(?m)^\s*(?:DELETE FROM|UPDATE|TRUNCATE)\b.*`).FindString(down); found != "" && len(named) == 0 {
			t.Errorf("%s does not say what this loses: %s", name, found)
		}
		before := catalog()
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatalf("%s cannot be taken back: %v", name, err)
		}
		after := catalog()
		for _, what := range before {
			table, _, _ := strings.Cut(what, ".")
			if !slices.Contains(after, what) && !slices.Contains(named, what) && !slices.Contains(named, table) {
				t.Errorf("%s loses %s, and does not say so: \"-- loses: %s\"", name, what, what)
			}
		}
		for _, what := range named {
			if !slices.Contains(before, what) {
				t.Errorf("%s loses %s, which was never there", name, what)
			}
		}
	}
}

// Migrations as they will come: of the real ones each only makes tables.
var madeUp = fstest.MapFS{
	"00101_first.sql":  {Data: []byte("-- loses: shelves, books\n-- +goose Up\nCREATE TABLE shelves (id int);\nCREATE TABLE books (id int);\n-- +goose Down\nDROP TABLE shelves, books;")},
	"00102_column.sql": {Data: []byte("-- loses: books.pages\n-- +goose Up\nALTER TABLE books ADD COLUMN pages int;\n-- +goose Down\nALTER TABLE books DROP COLUMN pages;")},
	"00103_index.sql":  {Data: []byte("-- +goose Up\nCREATE INDEX of_books ON books (id);\n-- +goose Down\nDROP INDEX of_books;")},
}

func TestWhatIsLostIsCounted(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m, err := schema.NewOn(stdlib.OpenDBFromPool(db), madeUp)
	servers.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	up(t, m)
	servers.Exec(t, db, `INSERT INTO books SELECT n, nullif(n % 2, 0) FROM generate_series(1, 5) AS n; INSERT INTO shelves VALUES (1)`)
	for _, want := range []struct{ name, lost string }{
		{"00103_index.sql", ""},
		{"00102_column.sql", "books.pages: 3 values"},
		{"00101_first.sql", "shelves: 1 row, books: 5 rows"},
		{"", ""},
	} {
		name, losses, err := m.Losses(t.Context())
		servers.NoError(t, err)
		if got := strings.Join(losses, ", "); name != want.name || got != want.lost {
			t.Errorf("%s loses %q, want %s and %q", name, got, want.name, want.lost)
		}
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
