package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// expectTransient checks how an error is classified, bare and wrapped.
func expectTransient(t *testing.T, what string, err error, transient bool) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error: the test does not test", what)
	}
	for _, e := range []error{err, fmt.Errorf("sale.Sell: %w", err), errors.Join(errors.New("rollback"), err)} {
		if postgres.IsTransient(e) != transient {
			t.Errorf("%s: %v (%T): transient %v", what, e, err, !transient)
		}
	}
}

// stateOf returns the state that Postgres gave an error, or "".
func stateOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// away returns settings for a Postgres that is not there.
func away(t *testing.T) config.Postgres {
	t.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	settings := servers.Defaults(t).Postgres
	settings.URL = "postgres://user:hunter2@" + address + "/nowhere"
	return settings
}

func TestStatesAreToldApart(t *testing.T) {
	t.Parallel()
	for state, transient := range map[string]bool{
		"08006": true, "08P01": true, "53100": true, "53200": true, "53300": true, "57P01": true, "57P03": true, "57014": true, "40001": true, "40P01": true,
		"55P03": true, "25006": true, "25P03": true, "40002": true,
		"55006": false, "25001": false, "25P02": false, "23502": false, "23503": false, "23505": false, "23514": false, "22012": false, "22021": false,
		"42601": false, "42P01": false, "P0001": false, "54000": false, "58030": false, "XX000": false,
	} {
		expectTransient(t, state, &pgconn.PgError{Code: state}, transient)
	}
	if postgres.IsTransient(nil) {
		t.Error("no error is a fault")
	}
	for _, err := range []error{context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded, net.ErrClosed, io.EOF, io.ErrUnexpectedEOF, &pgconn.ConnectError{}, postgres.ErrNoPermit} {
		expectTransient(t, "the end of a time, of a context or of a connection", err, true)
	}
	for _, err := range []error{pgx.ErrNoRows, errors.New("57014 in words only")} {
		expectTransient(t, "an error that has nothing to do with it", err, false)
	}
}

// acquire returns a connection and the server's process id of it.
func acquire(t *testing.T, db *pgxpool.Pool) (conn *pgxpool.Conn, pid uint32) {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	servers.NoError(t, err)
	t.Cleanup(conn.Release)
	return conn, conn.Conn().PgConn().PID()
}

// terminate ends a session from outside, as an operator or a shutdown does.
func terminate(t *testing.T, db *pgxpool.Pool, pid uint32) {
	t.Helper()
	if !servers.Value[bool](t, db, `SELECT pg_terminate_backend($1)`, pid) {
		t.Fatal("it is not terminated")
	}
	servers.Eventually(t, "the session has ended", func() bool {
		return !servers.Value[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
	})
}

// Which error comes first, the server's last words or the end of the connection, is up to the kernel.
func TestASessionThatIsTerminatedIsTransient(t *testing.T) {
	t.Parallel()
	db := servers.Pool(t, servers.Patient(servers.Settings(t))) // no statement and no transaction runs out
	servers.Exec(t, db, `CREATE TABLE marks (n int)`)
	t.Run("between two statements", func(t *testing.T) {
		conn, pid := acquire(t, db)
		terminate(t, db, pid)
		_, err := conn.Exec(t.Context(), `SELECT 1`)
		expectTransient(t, "the first", err, true)
		_, err = conn.Exec(t.Context(), `SELECT 1`) // now the client knows that it is dead
		expectTransient(t, "the second", err, true)
		if stateOf(err) != "" || !postgres.NothingSent(err) {
			t.Errorf("%v: something was sent", err)
		}
	})
	t.Run("in a statement", func(t *testing.T) {
		conn, pid := acquire(t, db)
		over := make(chan error, 1)
		go func() {
			_, err := conn.Exec(context.Background(), `SELECT pg_sleep(3600)`)
			over <- err
		}()
		servers.Eventually(t, "the statement runs", func() bool {
			return servers.Value[bool](t, db, `SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'`, pid)
		})
		terminate(t, db, pid)
		err := <-over
		expectTransient(t, "a statement at work", err, true)
		if stateOf(err) != "57P01" || postgres.NothingSent(err) {
			t.Errorf("%v, or a statement that was at work was not sent", err)
		}
	})
	t.Run("before the commit", func(t *testing.T) {
		tx, err := db.Begin(t.Context())
		servers.NoError(t, err)
		servers.Exec(t, tx, `INSERT INTO marks VALUES (1)`)
		terminate(t, db, tx.Conn().PgConn().PID())
		expectTransient(t, "a commit", tx.Commit(t.Context()), true)
		if servers.Value[bool](t, db, `SELECT EXISTS (SELECT FROM marks)`) {
			t.Error("it is committed")
		}
	})
}

func TestAPostgresThatIsAwayIsTransientAndOpenDoesNotNeedIt(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), away(t), "test")
	servers.NoError(t, err)
	_, err = db.Exec(t.Context(), `SELECT 1`)
	expectTransient(t, "a statement", err, true)
	if stateOf(err) != "" || containsPassword(err) {
		t.Errorf("got %v", err)
	}
	_, err = db.Begin(t.Context())
	expectTransient(t, "a transaction", err, true)
	db.Close()
	_, err = db.Exec(t.Context(), `SELECT 1`)
	expectTransient(t, "a pool that is closed", err, true)
}
