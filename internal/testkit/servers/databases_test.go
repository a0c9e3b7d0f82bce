package servers

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) { Main(m) }

// leased is a database that is left to a next test without a moment in which another
// process can lease it.
type leased struct {
	t    *testing.T
	d    *databases
	n    int32
	name string
}

func lease(t *testing.T) *leased {
	t.Helper()
	server, _ := urls(t)
	d, err := databasesOn(server)
	if err != nil {
		t.Fatal(err)
	}
	l := &leased{t: t, d: d}
	if l.n, l.name, err = d.lease(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.giveBack(t.Context(), l.n) })
	return l
}

func (l *leased) next() {
	l.t.Helper()
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	var err error
	if l.name, err = l.d.take(l.t.Context(), l.n); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leased) pool() *pgxpool.Pool {
	l.t.Helper()
	pool, err := pgxpool.New(l.t.Context(), l.d.url(l.name))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(pool.Close)
	return pool
}

// ask returns the number that a query returns.
func (l *leased) ask(sql string) (n int) {
	l.t.Helper()
	pool := l.pool()
	defer pool.Close()
	if err := pool.QueryRow(l.t.Context(), sql).Scan(&n); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

const identity = `SELECT oid::int FROM pg_database WHERE datname = current_database()`

func TestADatabaseIsTakenAgainAsTheTemplateIs(t *testing.T) {
	t.Parallel()
	l := lease(t)
	before := l.ask(identity)
	versions := l.ask(`SELECT count(*) FROM goose_db_version`)
	old := l.pool()
	for _, sql := range []string{
		`INSERT INTO api_clients (name, role) VALUES ('shop', 'app')`,
		`INSERT INTO refused_jobs (jobs) VALUES ('{}'), ('{}')`,
		`INSERT INTO beacon_chains SELECT sha256(n::text::bytea), '', 0, '', '', 3 FROM generate_series(1, 5000) n`, // refuses UPDATE, DELETE and TRUNCATE
		`INSERT INTO clock.moves VALUES ('1 day')`,
		`ANALYZE`,
	} {
		if _, err := old.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	l.next()
	if l.ask(identity) != before {
		t.Error("it is another database")
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM api_clients`:                                                     0,
		`SELECT count(*) FROM beacon_chains`:                                                   0,
		`SELECT sum(n_tup_ins + n_tup_del) FROM pg_stat_user_tables`:                           0,
		`SELECT count(*) FROM pg_stats WHERE schemaname = 'public'`:                            0,
		`SELECT count(*) FROM pg_class WHERE oid = 'api_clients'::regclass AND reltuples = -1`: 1,
		`SELECT count(*) FROM clock.moves`:                                                     0,
		`SELECT nextval(pg_get_serial_sequence('refused_jobs', 'id'))`:                         1,
		`SELECT count(*) FROM goose_db_version`:                                                versions,
		`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`:            0,
		`SELECT count(*) FROM pg_trigger WHERE tgenabled <> 'O' AND NOT tgisinternal`:          0,
	} {
		if got := l.ask(sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	if err := old.Ping(t.Context()); err == nil {
		t.Error("the last test gets into the next one")
	}
}

func TestADatabaseThatWasChangedForGoodIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a table":                       `CREATE TABLE things (n int)`,
		"no trigger":                    `ALTER TABLE ledger_entries DISABLE TRIGGER USER`,
		"no constraint":                 `ALTER TABLE freezes DROP CONSTRAINT freezes_campaign_id_fkey`,
		"no index":                      `DROP INDEX CONCURRENTLY campaigns_drawing`,
		"a function":                    `CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now()'`,
		"nothing":                       `DROP SCHEMA public CASCADE; CREATE SCHEMA public`,
		"not even what notes it":        `DROP SCHEMA lease CASCADE`,
		"a version":                     `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)`,
		"a version less":                `DELETE FROM goose_db_version WHERE version_id = 101`,
		"a setting":                     `ALTER DATABASE $ SET work_mem = '1MB'`,
		"changed and then changed back": `ALTER TABLE ledger_entries DISABLE TRIGGER USER; ALTER TABLE ledger_entries ENABLE TRIGGER USER`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lease(t)
			before := l.ask(identity)
			Exec(t, l.pool(), strings.ReplaceAll(sql, "$", l.name))
			l.next()
			if l.ask(identity) == before {
				t.Error("it is the same database")
			}
		})
	}
}
