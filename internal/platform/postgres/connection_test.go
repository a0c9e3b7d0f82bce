package postgres_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// acquire returns a connection and the server's process id of it.
func acquire(t *testing.T, db *pgxpool.Pool) (conn *pgxpool.Conn, pid uint32) {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn, conn.Conn().PgConn().PID()
}

// awaitGone waits until the server has ended a session.
func awaitGone(t *testing.T, db *pgxpool.Pool, pid uint32) {
	t.Helper()
	servers.Eventually(t, "the session has ended", func() bool {
		there := servers.Value[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
		return !there
	})
}

// awaitSleep waits until a session is in pg_sleep.
func awaitSleep(t *testing.T, db *pgxpool.Pool, pid uint32) {
	t.Helper()
	servers.Eventually(t, "the statement runs", func() (running bool) {
		err := db.QueryRow(t.Context(), `SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'`, pid).Scan(&running)
		if err != nil {
			t.Fatal(err)
		}
		return running
	})
}

// terminate ends a session from outside, as an operator or a shutdown does.
func terminate(t *testing.T, db *pgxpool.Pool, pid uint32) {
	t.Helper()
	var done bool
	if err := db.QueryRow(t.Context(), `SELECT pg_terminate_backend($1)`, pid).Scan(&done); err != nil || !done {
		t.Fatal(done, err)
	}
}

// expectTransient is expect for errors whose form depends on what the kernel
// delivers first: the server's last words or the end of the connection.
func expectTransient(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("no error: the test does not test")
	}
	if !postgres.IsTransient(err) {
		t.Errorf("%v (%T) is not transient", err, err)
	}
}

func TestASessionThatIsTerminatedIsTransient(t *testing.T) {
	t.Parallel()
	db, other := open(t, patient)
	t.Run("between two statements", func(t *testing.T) {
		conn, pid := acquire(t, db)
		terminate(t, other, pid)
		awaitGone(t, other, pid)
		_, err := conn.Exec(t.Context(), `SELECT 1`)
		expectTransient(t, err)
		_, err = conn.Exec(t.Context(), `SELECT 1`) // now the client knows that it is dead
		expect(t, err, "", true)
		if !postgres.NothingSent(err) {
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
		awaitSleep(t, other, pid)
		terminate(t, other, pid)
		err := <-over
		expect(t, err, "57P01", true)
		if postgres.NothingSent(err) {
			t.Error("a statement that was at work was not sent")
		}
	})
	t.Run("before the commit", func(t *testing.T) {
		tx := begin(t, db, `UPDATE marks SET note = 'lost' WHERE n = 1`)
		pid := tx.Conn().PgConn().PID()
		terminate(t, other, pid)
		awaitGone(t, other, pid)
		expectTransient(t, tx.Commit(t.Context()))
		var note string
		if err := other.QueryRow(t.Context(), `SELECT note FROM marks WHERE n = 1`).Scan(&note); err != nil || note != "a" {
			t.Errorf("the note is %q, %v", note, err)
		}
	})
}

func TestATransactionThatWasIdleTooLongIsTransient(t *testing.T) {
	t.Parallel()
	db, other := open(t, func(p *config.Postgres) { p.IdleInTransactionTimeout = 100 * time.Millisecond })
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	awaitGone(t, other, tx.Conn().PgConn().PID())
	_, err = tx.Exec(t.Context(), `SELECT 1`)
	expectTransient(t, err)
	// The pool has another one ready.
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAPostgresThatIsAwayIsTransient(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), away(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(t.Context(), `SELECT 1`)
	expect(t, err, "", true)
	_, err = db.Begin(t.Context())
	expect(t, err, "", true)
	db.Close()
	_, err = db.Exec(t.Context(), `SELECT 1`)
	expect(t, err, "", true)
}

func TestTheEndOfAContextIsTransient(t *testing.T) {
	t.Parallel()
	db, _ := open(t, patient)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := db.Exec(short, `SELECT pg_sleep(3600)`)
	expect(t, err, "", true)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = db.Exec(ended, `SELECT 1`)
	expect(t, err, "", true)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// Nobody gives a connection back while all are in use.
	settings := servers.Settings(t)
	settings.Postgres.MaxConnections = 2
	small := servers.Pool(t, settings)
	acquire(t, small)
	acquire(t, small)
	short, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = small.Exec(short, `SELECT 1`)
	expect(t, err, "", true)
}

// A server that crashes, is away, comes up again and recovers.
func TestARestartOfPostgresIsTransient(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Stop(); err != nil {
			t.Error(err)
		}
	})
	settings := servers.Defaults(t)
	settings.Postgres.URL = stack.Postgres.URL("postgres")
	patient(&settings.Postgres)
	db := servers.Pool(t, settings)
	over := make(chan error, 1)
	for range 2 {
		idle, _ := acquire(t, db)
		busy, pid := acquire(t, db)
		go func() {
			_, err := busy.Exec(context.Background(), `SELECT pg_sleep(3600)`)
			over <- err
		}()
		awaitSleep(t, db, pid)
		if err := stack.Postgres.Child.Stop(syscall.SIGQUIT, servers.Patience); err != nil { // as a crash
			t.Fatal(err)
		}
		expectTransient(t, <-over)
		_, err := idle.Exec(t.Context(), `SELECT 1`)
		expectTransient(t, err)
		_, err = db.Exec(t.Context(), `SELECT 1`)
		expectTransient(t, err)
		idle.Release()
		busy.Release()
		if err := stack.Postgres.Start(); err != nil {
			t.Fatal(err)
		}
		servers.Eventually(t, "Postgres is back", func() bool { // it starts, recovers, and answers
			_, err := db.Exec(t.Context(), `SELECT 1`)
			if err != nil && !postgres.IsTransient(err) {
				t.Fatalf("%v (%T) is not transient", err, err)
			}
			return err == nil
		})
	}
}
