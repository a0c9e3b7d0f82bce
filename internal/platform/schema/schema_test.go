package schema_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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
	return db
}

func migrator(t *testing.T, db *pgxpool.Pool) *schema.Migrator {
	t.Helper()
	m, err := schema.New(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// up migrates and returns what was done.
func up(t *testing.T, m *schema.Migrator) []string {
	t.Helper()
	done, err := m.Up(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
	if twice := servers.Value[int](t, db, `SELECT count(*) FROM (SELECT FROM goose_db_version GROUP BY version_id HAVING count(*) > 1) v`); twice != 0 {
		t.Errorf("%d versions were recorded twice", twice)
	}
	if locks := servers.Value[int](t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); locks != 0 {
		t.Errorf("%d locks are left", locks)
	}
}

// The database of the commit before version 1.0, as pg_dump writes it.
func TestADatabaseOfBefore1IsRefusedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	file, err := os.Open("testdata/before-1.0.sql.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	dump, err := io.ReadAll(text)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, conn, string(dump))
	servers.Exec(t, conn, `RESET ALL`)
	conn.Release()
	before := things(t, db)
	m := migrator(t, db)
	_, up := m.Up(t.Context())
	_, down := m.Down(t.Context())
	_, status := m.Status(t.Context())
	_, _, losses := m.Losses(t.Context())
	for name, err := range map[string]error{"up": up, "down": down, "status": status, "losses": losses, "check": schema.Check(t.Context(), db)} {
		if !errors.Is(err, schema.ErrBefore1) || !strings.Contains(err.Error(), "version 23") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := things(t, db); !slices.Equal(after, before) {
		t.Errorf("%v became %v", before, after)
	}
}
