package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func TestSessionsHaveTheSettings(t *testing.T) {
	t.Parallel()
	all := servers.Settings(t)
	servers.Exec(t, servers.Pool(t, all), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	settings := all.Postgres
	settings.URL += "&statement_timeout=1&application_name=other&timezone=Asia/Tokyo" // the settings win
	settings.StatementTimeout = 11 * time.Second
	settings.LockTimeout = 2500 * time.Millisecond
	settings.IdleInTransactionTimeout = 7 * time.Second
	settings.MaxConnections = 6
	settings.ConnectTimeout = 3 * time.Second
	db, err := postgres.Open(t.Context(), settings, "triprize-settings")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for name, want := range map[string]string{
		"statement_timeout": "11s", "lock_timeout": "2500ms", "idle_in_transaction_session_timeout": "7s",
		"tcp_user_timeout": "10000", "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2",
		"TimeZone": "UTC", "application_name": "triprize-settings", "transaction_isolation": "read committed",
	} {
		got := servers.Value[string](t, db, `SHOW `+name)
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if c := db.Config(); c.MaxConns != 6 || c.MaxConnIdleTime != 30*time.Second || c.ConnConfig.ConnectTimeout != 3*time.Second {
		t.Errorf("the pool has %d connections, idle for %s, connects for %s", c.MaxConns, c.MaxConnIdleTime, c.ConnConfig.ConnectTimeout)
	}
}

func TestTimesComeBackInUTC(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	want := time.Date(2026, 1, 1, 3, 0, 0, 123456000, time.UTC)
	var plain time.Time
	var pointer *time.Time
	var list []time.Time
	err := db.QueryRow(t.Context(), `SELECT t, t, ARRAY[t] FROM (SELECT timestamptz '2026-01-01 12:00:00.123456+09' AS t) x`).
		Scan(&plain, &pointer, &list)
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]time.Time{"a time": plain, "a pointer": *pointer, "an array": list[0]} {
		if !got.Equal(want) || got.Location() != time.UTC { // not merely a local zone that is UTC as well
			t.Errorf("%s: %v in %v", what, got, got.Location())
		}
	}
	var back time.Time
	if err := db.QueryRow(t.Context(), `SELECT $1::timestamptz`, want.In(time.FixedZone("JST", 9*3600))).Scan(&back); err != nil || !back.Equal(want) {
		t.Errorf("there and back: %v, %v", back, err)
	}
}

func TestUUIDsTravelThereAndBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := []uuid.UUID{uuid.New(), uuid.Nil, uuid.Must(uuid.NewV7())}
	for _, id := range ids {
		var back uuid.UUID
		var text string
		if err := db.QueryRow(t.Context(), `SELECT $1::uuid, $1::text`, id).Scan(&back, &text); err != nil {
			t.Fatal(err)
		}
		if back != id || text != id.String() {
			t.Errorf("%s came back as %s, the server has %s", id, back, text)
		}
	}
	var list []uuid.UUID
	var pointer, none *uuid.UUID
	if err := db.QueryRow(t.Context(), `SELECT $1::uuid[], $2::uuid, $3::uuid`, ids, &ids[0], none).Scan(&list, &pointer, &none); err != nil {
		t.Fatal(err)
	}
	if len(list) != len(ids) || list[0] != ids[0] || list[2] != ids[2] || *pointer != ids[0] || none != nil {
		t.Errorf("got %v, %v, %v", list, pointer, none)
	}
}

func TestUUIDsTravelAsBytes(t *testing.T) {
	t.Parallel()
	conn, err := servers.DB(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	id := uuid.New()
	rows, err := conn.Query(t.Context(), `SELECT $1::uuid`, id)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
	if format, raw := rows.FieldDescriptions()[0].Format, rows.RawValues()[0]; format != pgx.BinaryFormatCode || string(raw) != string(id[:]) {
		t.Errorf("it came in format %d as %q", format, raw)
	}
	if sent, err := conn.Conn().TypeMap().Encode(2950, pgx.BinaryFormatCode, id, nil); err != nil || string(sent) != string(id[:]) { // 2950 is uuid
		t.Errorf("it is sent as %q, %v", sent, err)
	}
}

func TestOpenDoesNotNeedPostgres(t *testing.T) {
	t.Parallel()
	settings := away(t)
	db, err := postgres.Open(t.Context(), settings, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://user:hunter2@host:port/db", "postgres://user:hunter2@%zz/db", "postgres://user:hunter2@host/db?sslmode=sometimes",
		"host=h password=hunter2 port=x", "postgres://user:hunter2@host/db?pool_max_conns=many",
	} {
		settings := servers.Defaults(t).Postgres
		settings.URL = url
		db, err := postgres.Open(t.Context(), settings, "test")
		if err == nil {
			db.Close()
			t.Errorf("%q was accepted", url)
			continue
		}
		for _, e := range []error{err, errors.Unwrap(err)} {
			if e != nil && strings.Contains(e.Error(), "hunter2") {
				t.Errorf("the password is in %q", e)
			}
		}
		if !strings.Contains(err.Error(), "postgres.url") {
			t.Errorf("%q does not name the setting", err)
		}
	}
}

// away returns settings for a Postgres that is not there.
func away(t *testing.T) config.Postgres {
	t.Helper()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	settings := servers.Defaults(t).Postgres
	settings.URL = "postgres://user:hunter2@" + address + "/nowhere"
	return settings
}

// rows counts the rows of the table marks.
func rows(t *testing.T, db postgres.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM marks`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestATransactionIsCommittedOrLeavesNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	servers.Exec(t, db, `CREATE TABLE marks (n int)`)
	mark := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO marks VALUES (1)`)
		return err
	}
	if err := postgres.InTx(t.Context(), db, mark); err != nil || rows(t, db) != 1 {
		t.Fatalf("%v, %d rows", err, rows(t, db))
	}
	refusal := errors.New("refused")
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		return errors.Join(mark(tx), refusal)
	})
	if !errors.Is(err, refusal) || rows(t, db) != 1 {
		t.Errorf("after an error: %v, %d rows", err, rows(t, db))
	}
	func() {
		defer func() {
			if p := recover(); p != "a defect" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			if err := mark(tx); err != nil {
				t.Error(err)
			}
			panic("a defect")
		})
	}()
	if n := rows(t, db); n != 1 {
		t.Errorf("after a panic: %d rows", n)
	}
	ctx, end := context.WithCancel(t.Context())
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		defer end()
		return mark(tx)
	})
	if err == nil || rows(t, db) != 1 {
		t.Errorf("after its context ended: %v, %d rows", err, rows(t, db))
	}
	if n := db.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still in use", n)
	}
}

func TestATransactionIsReadCommitted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		var level string
		if err := tx.QueryRow(t.Context(), `SHOW transaction_isolation`).Scan(&level); err != nil {
			return err
		}
		if level != "read committed" {
			t.Errorf("it is %s", level)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
