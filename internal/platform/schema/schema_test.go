package schema_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
func things(t *testing.T, db *pgxpool.Pool) (names []string) {
	t.Helper()
	err := db.QueryRow(t.Context(), `
		SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM (
			SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'goose_db_version%'
			UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace) all_names`).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAnEmptyDatabaseIsBroughtToTheNewestVersion(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	if err := schema.Check(t.Context(), db); !errors.Is(err, schema.ErrOld) {
		t.Errorf("before: %v", err)
	}
	done := up(t, m)
	if len(done) != len(files(t)) {
		t.Errorf("%d migrations applied: %v", len(done), done)
	}
	for i, file := range files(t) {
		if !strings.Contains(done[i], file) {
			t.Errorf("line %d does not name %s: %s", i, file, done[i])
		}
	}
	if err := schema.Check(t.Context(), db); err != nil {
		t.Errorf("after: %v", err)
	}
	fixture.Campaign(t, db, fixture.Draft(3)) // and the program can work on it
	fixture.Sound(t, db)
}

func TestASecondUpDoesNothing(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	up(t, m)
	before := things(t, db)
	if done := up(t, m); len(done) != 0 {
		t.Errorf("it did %v", done)
	}
	if done := up(t, migrator(t, db)); len(done) != 0 {
		t.Errorf("another migrator did %v", done)
	}
	if after := things(t, db); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v became %v", before, after)
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
	var twice int
	err := db.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT FROM goose_db_version GROUP BY version_id HAVING count(*) > 1) v`).Scan(&twice)
	if err != nil || twice != 0 {
		t.Errorf("%d versions were recorded twice, %v", twice, err)
	}
	var locks int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&locks); err != nil || locks != 0 {
		t.Errorf("%d locks are left, %v", locks, err)
	}
}

func TestEveryMigrationCanBeTakenBackAndAppliedAgain(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	up(t, m)
	full := things(t, db)
	names := files(t)
	for i := range names {
		newest := names[len(names)-1-i]
		done, err := m.Down(t.Context())
		if err != nil || len(done) != 1 || !strings.Contains(done[0], newest) {
			t.Fatalf("taking back %s: %v, %v", newest, done, err)
		}
		if err := schema.Check(t.Context(), db); !errors.Is(err, schema.ErrOld) {
			t.Errorf("without %s: %v", newest, err)
		}
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
	if again := things(t, db); fmt.Sprint(again) != fmt.Sprint(full) {
		t.Errorf("%v became %v", full, again)
	}
}

func TestStatusTellsWhatIsAppliedAndWhatIsPending(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	m := migrator(t, db)
	expect := func(applied int) {
		t.Helper()
		lines, err := m.Status(t.Context())
		if err != nil || len(lines) != len(files(t)) {
			t.Fatalf("%v, %v", lines, err)
		}
		for i, file := range files(t) {
			word, at := "pending", false
			if i < applied {
				word, at = "applied", true
			}
			fields := strings.Fields(lines[i])
			if fields[0] != word || fields[1] != file || (len(fields) == 4) != at {
				t.Errorf("line %d is %q, want %s %s", i, lines[i], word, file)
			}
		}
	}
	expect(0)
	up(t, m)
	expect(len(files(t)))
	if _, err := m.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(len(files(t)) - 1)
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
	if after := things(t, db); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v became %v", before, after)
	}
}
