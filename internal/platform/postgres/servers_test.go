package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
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

// The primary changes between the check of a connection and its entry among the open ones.
func TestAConnectionToAPrimaryThatWasJustReplacedIsRefused(t *testing.T) {
	t.Parallel()
	s := postgres.NewServers(servers.Logger(t))
	db, err := s.Open(t.Context(), servers.Patient(servers.Settings(t)).Postgres, "test")
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	conn, _ := acquire(t, db)
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
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	servers.NoError(t, err)
	t.Cleanup(func() { _ = dead.Close() })
	var dials atomic.Int32
	go func() {
		for {
			conn, err := dead.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_ = conn.Close()
		}
	}()
	settings := withHosts(t, servers.Patient(servers.Settings(t)), dead.Addr().String())
	shared := postgres.NewServers(servers.Logger(t))
	var pools []*pgxpool.Pool
	for range 2 { // pools of a process
		pool, err := shared.Open(t.Context(), settings.Postgres, "test")
		servers.NoError(t, err)
		t.Cleanup(pool.Close)
		pools = append(pools, pool)
	}
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
	if stateOf(err) != "25006" {
		t.Errorf("got %v", err)
	}
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
	owner := servers.Pool(t, settings)
	role := strings.ReplaceAll(settings.Redis.Namespace, "-", "")
	servers.Exec(t, owner, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'; REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public`)
	t.Cleanup(func() { servers.Exec(t, owner, `DROP ROLE `+role) })
	u, err := url.Parse(settings.Postgres.URL)
	servers.NoError(t, err)
	u.User = url.UserPassword(role, "secret")
	settings.Postgres.URL = u.String()
	var log servers.Journal
	s := postgres.NewServers(slog.New(slog.NewTextHandler(&log, nil)))
	db, err := s.Open(t.Context(), settings.Postgres, "test")
	servers.NoError(t, err)
	t.Cleanup(db.Close)
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

// ownPostgres starts a server that is this test's alone.
func ownPostgres(t *testing.T) config.Settings {
	t.Helper()
	stack, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = stack.Stop() })
	settings := servers.Patient(servers.Defaults(t))
	settings.Postgres.URL = stack.Postgres.URL("postgres")
	return settings
}

// A commit waits for a synchronous standby that is away, and the wait is cancelled, or its session terminated: it has
// committed here, and perhaps nowhere else.
func TestACommitThatNoLongerWaitsForItsStandbyHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	settings := ownPostgres(t)
	db, admin := servers.Pool(t, settings), servers.Pool(t, settings)
	gate := postgres.NewGate(db, prometheus.NewRegistry()).FirstTry(time.Second)
	servers.Exec(t, db, `CREATE TABLE marks (n serial)`)
	standby := func(name string) {
		servers.Exec(t, admin, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
		servers.Exec(t, admin, `SELECT pg_reload_conf()`)
		servers.Eventually(t, "the setting holds", func() bool {
			return servers.Value[string](t, admin, `SHOW synchronous_standby_names`) == name
		})
	}
	const insert = `INSERT INTO marks DEFAULT VALUES RETURNING n`
	inTx := func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), insert); return err }
	paths := map[string]func(ctx context.Context) error{
		"a transaction":           func(ctx context.Context) error { return postgres.InTx(ctx, db, inTx) },
		"a transaction of a gate": func(ctx context.Context) error { return postgres.InTx(ctx, gate, inTx) },
		"a statement":             func(ctx context.Context) error { _, err := db.Exec(ctx, insert); return err },
		"a simple statement": func(ctx context.Context) error {
			_, err := db.Exec(ctx, insert, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"a statement with rows": func(ctx context.Context) error {
			_, err := postgres.Collect(ctx, db, pgx.RowTo[int], insert)
			return err
		},
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
	waiting := func(want bool) { // a session that is cut shows a moment longer
		t.Helper()
		servers.Eventually(t, fmt.Sprint("a commit waits for the standby: ", want), func() bool {
			return servers.Value[bool](t, admin, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`) == want
		})
	}
	standby("nobody")
	armed := make(chan struct{})
	go func() { // until the checkpointer has read the setting, commits do not wait
		defer close(armed)
		emit := func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), `SELECT pg_logical_emit_message(true, '', '')`)
			return err
		}
		for postgres.InTx(context.Background(), db, emit) == nil {
		}
	}()
	waiting(true)
	servers.Exec(t, admin, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	<-armed
	waiting(false)
	want := 0
	for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		for name, write := range paths {
			over := make(chan error, 1)
			go func() { over <- write(context.Background()) }()
			waiting(true)
			servers.Exec(t, admin, `SELECT `+end+`(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			err := <-over
			waiting(false)
			want++
			expectTransient(t, fmt.Sprintf("%s, %s", name, end), err, true)
			if postgres.HadNoEffect(err) || postgres.NothingSent(err) {
				t.Errorf("%s, %s: %v proves that nothing was done", name, end, err)
			}
			servers.Eventually(t, "it is committed here", func() bool { return servers.Value[int](t, admin, `SELECT count(*) FROM marks`) == want })
		}
	}
	standby("")
	for name, write := range paths { // other warnings do not matter
		if err := write(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// As of a database that must be vacuumed, on each write.
func TestOtherWarningsDoNotBreakAConnection(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	servers.Exec(t, db, `DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication due to user request'; END $$`)
}
