package servers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/schema"
	"triprize/migrations"
)

// databases are those of one server that this process has leased. All processes of a
// run share the databases of a template. A database is cloned when all others are
// leased, and emptied when it is leased again: a clone that is dropped costs a
// checkpoint.
//
// A lease is an advisory lock of one session of this process on the number of the
// database, so it ends with the process at the latest. With each lease the database
// gets another name. A session that a test left open, and one that it still opens,
// does not get into the next test.
type databases struct {
	mu     sync.Mutex
	server url.URL   // leads to the maintenance database
	conn   *pgx.Conn // has the locks
	prefix string    // of the names of all databases of the template; it begins the name of the template too
	class  int32     // of the locks, from the prefix
	leased []int32
}

// The template has, beside the migrations, what empties a database, and a clock that a
// test can move on (see Clock). A database notes there that its schema was changed, and is not
// leased again then. The trigger is silent in a session that replicates, such as the
// one that empties.
const forTests = `
	CREATE SCHEMA clock;
	CREATE TABLE clock.moves (by interval NOT NULL);
	CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		$$ SELECT pg_catalog.clock_timestamp() + coalesce((SELECT sum(by) FROM clock.moves), '0') $$;

	CREATE SCHEMA lease;
	CREATE TABLE lease.changes (tag text NOT NULL);
	CREATE TABLE lease.versions AS TABLE goose_db_version;
	CREATE TABLE lease.statistics AS SELECT oid, relpages, reltuples, relallvisible FROM pg_class
		WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace;
	CREATE FUNCTION lease.note_change() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO lease.changes VALUES (tg_tag);
	END $$;
	CREATE FUNCTION lease.empty() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		used record;
	BEGIN
		IF EXISTS (SELECT FROM lease.changes)
			OR EXISTS (SELECT FROM goose_db_version g FULL JOIN lease.versions v USING (id, version_id, is_applied, tstamp) WHERE g.* IS NULL OR v.* IS NULL)
			OR EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()) THEN
			RAISE EXCEPTION 'a test has changed this database for good';
		END IF;
		FOR used IN SELECT oid::regclass AS name, pg_relation_size(oid) AS size FROM pg_class
			WHERE relkind = 'r' AND relnamespace IN ('public'::regnamespace, 'clock'::regnamespace)
			AND relname <> 'goose_db_version' AND pg_relation_size(oid) > 0 LOOP
			IF used.size < 10 * 8192 THEN -- plans take less for as much
				EXECUTE 'DELETE FROM ' || used.name;
			ELSE
				EXECUTE 'TRUNCATE ' || used.name || ' CASCADE'; -- dead rows would be read over and over
			END IF;
		END LOOP;
		-- What autovacuum learned from the last test would give the next one other plans.
		DELETE FROM pg_statistic USING lease.statistics WHERE starelid = oid;
		UPDATE pg_class c SET relpages = s.relpages, reltuples = s.reltuples, relallvisible = s.relallvisible
		FROM lease.statistics s WHERE c.oid = s.oid AND (c.relpages, c.reltuples, c.relallvisible) IS DISTINCT FROM (s.relpages, s.reltuples, s.relallvisible);
		PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
		FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL AND sequencename NOT LIKE 'goose%';
	END $$;
	CREATE EVENT TRIGGER note_change ON ddl_command_end EXECUTE FUNCTION lease.note_change();
	CREATE EVENT TRIGGER note_drop ON sql_drop EXECUTE FUNCTION lease.note_change();`

var (
	databasesMu sync.Mutex
	databasesOf = make(map[string]*databases) // by the URL of the server
)

// newDatabase leases a migrated, empty database until the test ends, and returns its URL.
func newDatabase(t testing.TB, server string) string {
	t.Helper()
	d, err := databasesOn(server)
	NoError(t, err)
	n, name, err := d.lease(context.Background())
	NoError(t, err)
	t.Cleanup(func() {
		if err := d.giveBack(context.Background(), n); err != nil {
			t.Error(err)
		}
	})
	return d.url(name)
}

func databasesOn(server string) (*databases, error) {
	databasesMu.Lock()
	defer databasesMu.Unlock()
	if d := databasesOf[server]; d != nil {
		return d, nil
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL", PostgresVariable) // the error would show the password
	}
	hash, err := templateHash()
	if err != nil {
		return nil, err
	}
	d := &databases{server: *u, prefix: "triprize_test_" + hex.EncodeToString(hash[:8]),
		class: int32(uint32(hash[0])<<24 | uint32(hash[1])<<16 | uint32(hash[2])<<8 | uint32(hash[3]))} //nolint:gosec // all values are good
	ctx := context.Background()
	if d.conn, err = pgx.Connect(ctx, server); err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(err, d.conn.Close(ctx))
	}
	databasesOf[server] = d
	return d, nil
}

// templateHash is of all that makes the template.
func templateHash() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	fmt.Fprint(h, forTests)
	err = fs.WalkDir(migrations.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(migrations.Files, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(data), data)
		return err
	})
	return [sha256.Size]byte(h.Sum(nil)), err
}

// prepare makes the template, if no other process has.
func (d *databases) prepare(ctx context.Context) (err error) {
	if _, err := d.conn.Exec(ctx, `SELECT pg_advisory_lock($1, -1)`, d.class); err != nil {
		return err
	}
	defer func() {
		_, unlocked := d.conn.Exec(ctx, `SELECT pg_advisory_unlock($1, -1)`, d.class)
		err = errors.Join(err, unlocked)
	}()
	names, err := d.names(ctx, d.template())
	if err != nil || len(names) > 0 {
		return err
	}
	unfinished := d.prefix + "_unfinished"
	if err := d.exec(ctx, `DROP DATABASE IF EXISTS %s WITH (FORCE)`, unfinished); err != nil {
		return err
	}
	if err := d.exec(ctx, `CREATE DATABASE %s ENCODING 'UTF8' TEMPLATE template0`, unfinished); err != nil {
		return err
	}
	if err := d.migrate(ctx, unfinished); err != nil {
		return err
	}
	if err := d.endSessions(ctx, unfinished); err != nil {
		return err
	}
	return d.exec(ctx, `ALTER DATABASE %s RENAME TO %s`, unfinished, d.template())
}

func (d *databases) migrate(ctx context.Context, name string) error {
	pool, err := pgxpool.New(ctx, d.url(name))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := schema.Migrate(ctx, pool); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, forTests)
	return err
}

// lease returns a database that nobody else has, and its number.
func (d *databases) lease(ctx context.Context) (n int32, name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A session gets a lock again that it has.
	err = d.conn.QueryRow(ctx, `SELECT n FROM generate_series(0, 999) n WHERE CASE WHEN n = ANY($2) THEN false ELSE pg_try_advisory_lock($1, n) END LIMIT 1`,
		d.class, d.leased).Scan(&n)
	if err != nil {
		return 0, "", fmt.Errorf("lease a database: %w", err)
	}
	if name, err = d.take(ctx, n); err != nil {
		return 0, "", errors.Join(err, d.unlock(ctx, n))
	}
	d.leased = append(d.leased, n)
	return n, name, nil
}

// take makes the database of a locked number fit for use, or clones another.
func (d *databases) take(ctx context.Context, n int32) (name string, err error) {
	numbered := fmt.Sprintf("%s_%d_", d.prefix, n)
	name = numbered + strings.ToLower(rand.Text()[:8])
	idle, err := d.names(ctx, numbered)
	if err != nil {
		return "", err
	}
	for _, old := range idle {
		ok, err := d.takeAgain(ctx, old, name)
		if err != nil {
			return "", fmt.Errorf("take %s again: %w", old, err)
		}
		if ok {
			return name, nil
		}
	}
	return name, d.exec(ctx, `CREATE DATABASE %s TEMPLATE %s`, name, d.template())
}

// takeAgain renames and empties an idle database. It drops one that tests must not
// have again.
func (d *databases) takeAgain(ctx context.Context, old, name string) (ok bool, err error) {
	if err := d.endSessions(ctx, old); err != nil {
		return false, err
	}
	if err := d.exec(ctx, `ALTER DATABASE %s RENAME TO %s`, old, name); err != nil { // somebody opens one session after the other
		return false, d.exec(ctx, `DROP DATABASE %s WITH (FORCE)`, old)
	}
	if ok = d.empty(ctx, name) == nil; ok {
		return true, d.endSessions(ctx, name)
	}
	return false, d.exec(ctx, `DROP DATABASE %s WITH (FORCE)`, name)
}

// empty fails for a database that a test has changed: it can be in any state then, without
// lease.empty or closed to sessions.
func (d *databases) empty(ctx context.Context, name string) error {
	settings, err := pgx.ParseConfig(d.url(name))
	if err != nil {
		return err
	}
	settings.RuntimeParams["session_replication_role"] = "replica"
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return err
	}
	// Deadlocks and rows are counted from here, without those of the emptying.
	for _, sql := range []string{`SELECT lease.empty(), pg_stat_force_next_flush()`, `SELECT pg_stat_reset()`} {
		if _, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			break
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// endSessions ends the sessions on a database, and waits until they are gone: not for
// ever, as a test may have left something that begins others.
func (d *databases) endSessions(ctx context.Context, name string) error {
	gap := time.Millisecond
	for range 50 {
		var n int
		err := d.conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1`, name).Scan(&n)
		if err != nil || n == 0 {
			return err
		}
		time.Sleep(gap)
		gap = min(2*gap, lastGap)
	}
	return nil
}

// giveBack ends a lease. The database is left as it is.
func (d *databases) giveBack(ctx context.Context, n int32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leased = slices.DeleteFunc(d.leased, func(other int32) bool { return other == n })
	return d.unlock(ctx, n)
}

func (d *databases) unlock(ctx context.Context, n int32) error {
	_, err := d.conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2)`, d.class, n)
	return err
}

func (d *databases) template() string { return d.prefix + "_template" }

func (d *databases) url(name string) string {
	u := d.server
	u.Path = "/" + name
	return u.String()
}

// names returns the databases whose names begin with a text.
func (d *databases) names(ctx context.Context, beginning string) ([]string, error) {
	rows, err := d.conn.Query(ctx, `SELECT datname FROM pg_database WHERE starts_with(datname, $1)`, beginning)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// exec executes a statement about databases of ours: no name needs quotes.
func (d *databases) exec(ctx context.Context, statement string, names ...any) error {
	_, err := d.conn.Exec(ctx, fmt.Sprintf(statement, names...))
	return err
}
