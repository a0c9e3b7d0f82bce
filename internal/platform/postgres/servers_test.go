package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestTheNewestPrimaryIsTheOneWithTheHighestTimeline(t *testing.T) {
	t.Parallel()
	mute, first, second, other := postgres.Primary{}, postgres.Primary{System: 7, Timeline: 1}, postgres.Primary{System: 7, Timeline: 2}, postgres.Primary{System: 8, Timeline: 9}
	s := postgres.NewServers(servers.Logger(t))
	for i, step := range []struct {
		adopt, meet postgres.Primary
		refused     bool
	}{
		{meet: mute}, {meet: first}, {meet: first}, {meet: other, refused: true}, {meet: mute},
		{meet: second}, {meet: first, refused: true}, {meet: second}, // the old one comes back
		{adopt: first, meet: first, refused: true}, // Redis has lost its last second
		{adopt: postgres.Primary{System: 7, Timeline: 3}, meet: second, refused: true},
		{adopt: other, meet: second, refused: true}, {meet: other}, // after a restore with other data
	} {
		if step.adopt != mute {
			s.Adopt(step.adopt)
		}
		if err := s.Meet(step.meet); errors.Is(err, postgres.ErrAnotherPrimary) != step.refused {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// open opens a pool of a process that has seen these servers.
func open(t *testing.T, s *postgres.Servers, settings config.Settings) *pgxpool.Pool {
	t.Helper()
	db, err := s.Open(t.Context(), settings.Postgres, "test")
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// The primary changes between the check of a connection and its entry among the open ones.
func TestAConnectionToAPrimaryThatWasJustReplacedIsRefused(t *testing.T) {
	t.Parallel()
	s := postgres.NewServers(servers.Logger(t))
	conn, _ := acquire(t, open(t, s, servers.Patient(servers.Settings(t))))
	now, err := s.Identify(t.Context(), conn)
	servers.NoError(t, err)
	servers.NoError(t, s.Opened(conn.Conn()))
	now.Timeline++
	s.Adopt(now)
	if err := s.Opened(conn.Conn()); !errors.Is(err, postgres.ErrAnotherPrimary) || !postgres.IsTransient(err) {
		t.Errorf("got %v", err)
	}
}

// withHosts returns settings with more hosts before the server's.
func withHosts(t *testing.T, settings config.Settings, hosts string) config.Settings {
	t.Helper()
	u, err := url.Parse(settings.Postgres.URL)
	servers.NoError(t, err)
	settings.Postgres.URL = strings.Replace(settings.Postgres.URL, u.Host, hosts+","+u.Host, 1)
	return settings
}

func TestTheLastGoodHostComesFirst(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	dead := httptest.NewUnstartedServer(nil)
	dead.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
			_ = conn.Close()
		}
	}
	dead.Start()
	t.Cleanup(dead.Close)
	settings := withHosts(t, servers.Patient(servers.Settings(t)), dead.Listener.Addr().String())
	shared := postgres.NewServers(servers.Logger(t))
	pools := []*pgxpool.Pool{open(t, shared, settings), open(t, shared, settings)}
	acquire(t, pools[0])
	first := dials.Load() // with and without TLS
	for range 2 {         // with several connections each
		for _, pool := range pools {
			acquire(t, pool)
		}
	}
	if n := dials.Load(); first == 0 || n != first {
		t.Errorf("the first host was tried %d times, then %d times", first, n-first)
	}
}

// Without a connection to spare: pgx alone would close the lost one for 15 s.
func TestAPoolWhoseServerHasVanishedSoonHasAConnectionToAnother(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	tap := fleet.NewTap(t, settings.Postgres.URL)
	first, err := url.Parse(tap.URL)
	servers.NoError(t, err)
	settings = withHosts(t, settings, first.Host)
	settings.Postgres.MaxConnections = 1
	db := servers.Pool(t, settings)
	servers.NoError(t, db.Ping(t.Context()))
	tap.Vanish(t)
	bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := db.Ping(bounded); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	servers.NoError(t, db.Ping(soon))
}

func TestEachOfSeveralHostsHasTwoSeconds(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][2]time.Duration{"": {5 * time.Second, 2 * time.Second}, "&connect_timeout=7": {7 * time.Second, 7 * time.Second}} {
		for i, hosts := range []string{"one", "one,two"} {
			pool, err := postgres.Open(t.Context(), config.Postgres{URL: "postgres://" + hosts + "/shop?sslmode=prefer" + query, MaxConnections: 1}, "test")
			servers.NoError(t, err)
			if got := pool.Config().ConnConfig.ConnectTimeout; got != want[i] {
				t.Errorf("%s%s: %s", hosts, query, got)
			}
			pool.Close()
		}
	}
}

// A primary that was demoted, or one that an operator has made read-only, takes no write until the next connection.
func TestAReadOnlyErrorClosesItsConnection(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	settings.Postgres.MaxConnections = 1
	db := servers.Pool(t, settings)
	servers.Exec(t, db, `CREATE TABLE marks (n int)`)
	servers.Exec(t, db, `SET default_transaction_read_only = on`) // of this session
	_, err := db.Exec(t.Context(), `INSERT INTO marks VALUES (1)`)
	expectTransient(t, "a write", err, true)
	servers.Exec(t, db, `INSERT INTO marks VALUES (2)`)
}

func TestDroppedStartupParametersAreNamed(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	settings.Postgres.MaxConnections = 1
	db := servers.Pool(t, settings)
	servers.NoError(t, postgres.CheckSession(t.Context(), db))
	servers.Exec(t, db, `RESET ALL; SET lock_timeout = 0; SET jit = on`) // as after a pooler that drops two
	err := postgres.CheckSession(t.Context(), db)
	if err == nil || !strings.HasSuffix(err.Error(), `ALTER ROLE "triprize" SET jit = 'off'; ALTER ROLE "triprize" SET lock_timeout = '3000';`) {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatDoesNotSayWhoItIsIsNotCompared(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	servers.Exec(t, servers.Pool(t, settings), `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public`)
	settings.Postgres.URL += "&options=-crole%3Dpg_signal_backend"
	var log servers.Journal
	s := postgres.NewServers(slog.New(slog.NewTextHandler(&log, nil)))
	db := open(t, s, settings)
	for range 2 {
		acquire(t, db)
		if p, err := s.Identify(t.Context(), db); err != nil || p != (postgres.Primary{}) {
			t.Errorf("it is %v, %v", p, err)
		}
	}
	if text := log.String(); strings.Count(text, "does not say who it is") != 1 {
		t.Errorf("the log is %q", text)
	}
}

// A commit waits for a synchronous standby that is away, and the wait is cancelled, or its session terminated: it has
// committed here, and perhaps nowhere else.
func TestACommitThatNoLongerWaitsForItsStandbyHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	settings := servers.OwnPostgres(t)
	db, admin := servers.Pool(t, settings), servers.Pool(t, settings)
	gate := postgres.NewGate(db, prometheus.NewRegistry()).FirstTry(time.Second)
	servers.Exec(t, db, `CREATE TABLE marks (n serial)`)
	const insert = `INSERT INTO marks DEFAULT VALUES RETURNING n`
	inTx := func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), insert); return err }
	paths := map[string]func(ctx context.Context) error{
		"a transaction":           func(ctx context.Context) error { return postgres.InTx(ctx, db, inTx) },
		"a transaction of a gate": func(ctx context.Context) error { return postgres.InTx(ctx, gate, inTx) },
		"a statement":             func(ctx context.Context) error { _, err := db.Exec(ctx, insert); return err },
		"a statement with a row": func(ctx context.Context) error {
			var n int
			return db.QueryRow(ctx, insert).Scan(&n)
		},
		"a batch": func(ctx context.Context) error {
			var b pgx.Batch
			b.Queue(insert)
			b.Queue(`SELECT 1`)
			return postgres.Send(ctx, db, &b)
		},
	}
	servers.AwaitNobody(t, admin)
	for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		for name, write := range paths {
			over := make(chan error, 1)
			go func() { over <- write(context.Background()) }()
			servers.EndWait(t, admin, end)
			err := <-over
			expectTransient(t, fmt.Sprintf("%s, %s", name, end), err, true)
			if postgres.HadNoEffect(err) || postgres.NothingSent(err) {
				t.Errorf("%s, %s: %v proves that nothing was done", name, end, err)
			}
		}
	}
}

// As of a database that must be vacuumed, on each write.
func TestOtherWarningsDoNotBreakAConnection(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	servers.Exec(t, db, `DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication due to user request'; END $$`)
}
