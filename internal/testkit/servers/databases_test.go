package servers

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) { Main(m) }

func TestADatabaseIsTakenAgainAsTheTemplateIs(t *testing.T) {
	t.Parallel()
	server, _ := urls(t)
	d, err := databasesOn(server)
	NoError(t, err)
	n, name, err := d.lease(t.Context())
	NoError(t, err)
	defer func() { NoError(t, d.giveBack(t.Context(), n)) }()
	open := func() *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), d.url(name))
		NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	const identity = `SELECT oid::int FROM pg_database WHERE datname = current_database()`
	old := open()
	before, versions := Value[int](t, old, identity), Value[int](t, old, `SELECT count(*) FROM goose_db_version`)
	for _, sql := range []string{
		`INSERT INTO api_clients (name, role) VALUES ('shop', 'app')`,
		`INSERT INTO refused_jobs (jobs) VALUES ('{}'), ('{}')`,
		`INSERT INTO beacon_chains SELECT sha256(n::text::bytea), '', 0, '', '', 3 FROM generate_series(1, 5000) n`, // refuses UPDATE, DELETE and TRUNCATE
		`INSERT INTO clock.moves VALUES ('1 day')`,
		`ANALYZE`,
	} {
		Exec(t, old, sql)
	}
	d.mu.Lock()
	name, err = d.take(t.Context(), n)
	d.mu.Unlock()
	NoError(t, err)
	again := open()
	for sql, want := range map[string]int{
		identity:                                                       before,
		`SELECT count(*) FROM goose_db_version`:                        versions,
		`SELECT count(*) FROM api_clients`:                             0,
		`SELECT count(*) FROM beacon_chains`:                           0,
		`SELECT count(*) FROM clock.moves`:                             0,
		`SELECT nextval(pg_get_serial_sequence('refused_jobs', 'id'))`: 1,
		`SELECT count(*) FROM pg_stats WHERE schemaname = 'public'`:    0,
		`SELECT count(*) FROM pg_class WHERE oid = 'api_clients'::regclass AND reltuples = -1`: 1,
		`SELECT sum(n_tup_ins + n_tup_del) FROM pg_stat_user_tables`:                           0,
		`SELECT count(*) FROM pg_trigger WHERE tgenabled <> 'O' AND NOT tgisinternal`:          0,
	} {
		if got := Value[int](t, again, sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	if err := old.Ping(t.Context()); err == nil {
		t.Error("the last test gets into the next one")
	}
}
