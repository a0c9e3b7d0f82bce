package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func TestSessionsHaveTheSettings(t *testing.T) {
	t.Parallel()
	all := servers.Patient(servers.Settings(t))
	for _, of := range []string{"default_transaction_isolation = serializable", "standard_conforming_strings = off", "datestyle = 'German'", "client_encoding = latin1", "idle_session_timeout = 1"} {
		servers.Exec(t, servers.Pool(t, all), strings.ReplaceAll(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ', current_database()) || $q$of$q$; END $$`, "of", of))
	}
	settings := all.Postgres
	settings.URL += "&statement_timeout=1&application_name=other&timezone=Asia/Tokyo" // the settings win
	settings.StatementTimeout = 11 * time.Minute
	settings.LockTimeout = 2500 * time.Millisecond
	settings.IdleInTransactionTimeout = 7 * time.Minute
	settings.MaxConnections = 6
	settings.ConnectTimeout = 3 * time.Minute
	db, err := postgres.Open(t.Context(), settings, "triprize-settings")
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	if got := postgres.NewGate(db, prometheus.NewRegistry()).Timeout(); got != settings.LockTimeout {
		t.Errorf("the gate waits for %v", got)
	}
	for name, want := range map[string]string{
		"statement_timeout": "11min", "lock_timeout": "2500ms", "idle_in_transaction_session_timeout": "7min",
		"tcp_user_timeout": "10000", "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2",
		"TimeZone": "UTC", "application_name": "triprize-settings", "transaction_isolation": "read committed",
		"standard_conforming_strings": "on", "DateStyle": "ISO, MDY", "client_encoding": "UTF8", "idle_session_timeout": "0",
	} {
		got := servers.Value[string](t, db, `SHOW `+name)
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if c := db.Config(); c.MaxConns != 6 || c.MaxConnIdleTime != 30*time.Second || c.ConnConfig.ConnectTimeout != 3*time.Minute {
		t.Errorf("the pool has %d connections, idle for %s, connects for %s", c.MaxConns, c.MaxConnIdleTime, c.ConnConfig.ConnectTimeout)
	}
}

func TestTheDocumentsTimeoutsAreTheDefaults(t *testing.T) {
	t.Parallel()
	db := servers.Pool(t, servers.Settings(t))
	var statement, lock string
	err := db.QueryRow(t.Context(), `SELECT current_setting('statement_timeout'), current_setting('lock_timeout')`).Scan(&statement, &lock)
	if connect := db.Config().ConnConfig.ConnectTimeout; err != nil || statement != "10s" || lock != "3s" || connect != 5*time.Second {
		t.Errorf("statement %s, lock %s, connect %s, %v", statement, lock, connect, err)
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
	servers.NoError(t, err)
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
		if containsPassword(err) || containsPassword(errors.Unwrap(err)) {
			t.Errorf("the password is in %q", err)
		}
		if !strings.Contains(err.Error(), "postgres.url") {
			t.Errorf("%q does not name the setting", err)
		}
	}
}

func TestADatabaseThatIsNotAsAssumedIsRefused(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	db := servers.Pool(t, settings)
	servers.NoError(t, postgres.CheckServer(t.Context(), db))
	name := servers.Value[string](t, db, `SELECT current_database()`)
	servers.Exec(t, db, `CREATE DATABASE `+name+`_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0`)
	t.Cleanup(func() { servers.Exec(t, db, `DROP DATABASE `+name+`_ascii WITH (FORCE)`) })
	settings.Postgres.URL = strings.ReplaceAll(settings.Postgres.URL, name, name+"_ascii")
	ascii := servers.Pool(t, settings)
	for _, check := range []func() error{func() error { return postgres.CheckServer(t.Context(), ascii) }, func() error { return postgres.CheckSession(t.Context(), ascii) }} {
		if err := check(); err == nil || postgres.IsTransient(err) || !strings.Contains(err.Error(), "encoding of the database: SQL_ASCII") {
			t.Errorf("got %v", err)
		}
	}
}

func containsPassword(err error) bool { return err != nil && strings.Contains(err.Error(), "hunter2") }
