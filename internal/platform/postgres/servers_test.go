package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestTheNewestPrimaryIsTheOneWithTheHighestTimeline(t *testing.T) {
	t.Parallel()
	mute, first, second, other := postgres.Primary{}, postgres.Primary{System: 7, Timeline: 1}, postgres.Primary{System: 7, Timeline: 2}, postgres.Primary{System: 8, Timeline: 9}
	one, two := postgres.Primary{System: 8, Timeline: 10, Branch: "one"}, postgres.Primary{System: 8, Timeline: 10, Branch: "two"}
	s := postgres.NewServers(servers.Logger(t))
	for i, step := range []struct {
		adopt, meet postgres.Primary
		refused     bool
		branch      bool
	}{
		{meet: mute}, {meet: first}, {meet: first}, {meet: other, refused: true}, {meet: mute},
		{meet: second}, {meet: first, refused: true}, {meet: second}, // the old one comes back
		{adopt: first, meet: first, refused: true}, // Redis has lost its last second
		{adopt: postgres.Primary{System: 7, Timeline: 3}, meet: second, refused: true},
		{adopt: other, meet: second, refused: true}, {meet: other}, // after a restore with other data
		{meet: postgres.Primary{System: 8, Timeline: 10}}, {meet: one}, // that could not be read at first, or nobody had migrated
		{meet: two, refused: true, branch: true}, {adopt: two, meet: one, refused: true, branch: true}, {meet: two}, // the fleet agrees on one
	} {
		if step.adopt != mute {
			s.Adopt(step.adopt)
		}
		if err := s.Meet(step.meet); errors.Is(err, postgres.ErrAnotherPrimary) != step.refused || errors.Is(err, postgres.ErrTwoBranches) != step.branch {
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

func TestThePrimaryBeforeAPromotionIsRefused(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true, Postgres: devstack.PostgresStandby})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = stack.Stop() })
	old, promoted := servers.Patient(servers.Defaults(t)), servers.Patient(servers.Defaults(t))
	old.Postgres.URL, promoted.Postgres.URL = stack.Postgres.URL("postgres"), stack.Standby.URL("postgres")
	s := postgres.NewServers(servers.Logger(t))
	conn, _ := acquire(t, open(t, s, old))
	servers.Exec(t, servers.Pool(t, promoted), `SELECT pg_promote()`)
	acquire(t, open(t, s, promoted)) // at once
	_, err = conn.Exec(t.Context(), `SELECT 1`)
	expectTransient(t, "an open connection", err, true)
	_, newly := open(t, s, old).Exec(t.Context(), `SELECT 1`)
	for what, err := range map[string]error{"a new connection": newly, "one between its check and its entry among the open ones": s.Opened(conn.Conn())} {
		if !errors.Is(err, postgres.ErrAnotherPrimary) || !postgres.IsTransient(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Two servers that are promoted apart count up to the same timeline. Each is asked by processes that know both hosts, and
// the first is the old primary, whose commits wait for a standby that has left.
func TestOneOfTwoBranchesWithOneTimelineIsRefused(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(context.Background(), devstack.Options{Unsafe: true, Postgres: devstack.PostgresStandby})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = stack.Stop() })
	settings := servers.Patient(servers.Defaults(t))
	settings.Postgres.URL = stack.Postgres.URL("postgres")
	at := func(url string) config.Settings { settings.Postgres.URL = url; return settings }
	old, promoted := at(stack.Postgres.URL("postgres")), at(stack.Standby.URL("postgres"))
	servers.NoError(t, schema.Migrate(t.Context(), servers.Pool(t, old)))
	hosts, err := url.Parse(promoted.Postgres.URL)
	servers.NoError(t, err)
	first, err := url.Parse(old.Postgres.URL)
	servers.NoError(t, err)
	hosts.Host, hosts.RawQuery = first.Host+","+hosts.Host, "sslmode=prefer&target_session_attrs=read-write" // each host twice

	fleet := postgres.NewServers(servers.Logger(t))
	both := open(t, fleet, at(hosts.String()))
	is := func(s *postgres.Servers, db *pgxpool.Pool) postgres.Primary {
		t.Helper()
		p, err := s.Identify(t.Context(), db)
		servers.NoError(t, err)
		return p
	}
	before := is(fleet, both)
	if again := is(fleet, both); before.Branch == "" || again != before {
		t.Errorf("a branch that was met is %q, and then %q", before.Branch, again.Branch)
	}
	servers.Exec(t, servers.Pool(t, promoted), `SELECT pg_promote()`)
	if p := is(fleet, both); p != before {
		t.Errorf("while the old primary answers, it is %v", p)
	}
	fleet.AskOthers(t.Context(), both)
	servers.Eventually(t, "the one that was promoted replaces it", func() bool {
		p, err := fleet.Identify(t.Context(), both)
		return err == nil && p.Timeline == before.Timeline+1
	})

	servers.Exec(t, servers.Pool(t, old), `COPY (SELECT) TO '`+servers.Value[string](t, servers.Pool(t, old), `SHOW data_directory`)+`/standby.signal'`)
	servers.NoError(t, stack.Postgres.RestartAfter(t.Context(), 0)) // as a standby of nobody
	servers.Exec(t, servers.Pool(t, old), `SELECT pg_promote()`)
	if _, err := open(t, fleet, old).Exec(t.Context(), `SELECT 1`); !errors.Is(err, postgres.ErrTwoBranches) {
		t.Errorf("the other branch: %v", err)
	}
	if n := servers.Value[int](t, servers.Pool(t, promoted), `SELECT count(*) FROM timelines WHERE timeline = 2`); n != 1 {
		t.Errorf("the branch of the fleet has %d rows", n)
	}
	alone := postgres.NewServers(servers.Logger(t)) // a process that knows of no other
	if p := is(alone, open(t, alone, old)); p.Timeline != fleet.Newest().Timeline || p.Branch == "" || p.Branch == fleet.Newest().Branch {
		t.Errorf("it calls the branch %v, the fleet %v", p, fleet.Newest())
	}
	if err := fleet.Meet(alone.Newest()); !errors.Is(err, postgres.ErrTwoBranches) {
		t.Errorf("the other branch, now with a name of its own: %v", err)
	}
}

// behind returns settings that name another host before the server's.
func behind(settings config.Settings, host string) config.Settings {
	settings.Postgres.URL = strings.Replace(settings.Postgres.URL, "@", "@"+host+",", 1)
	return settings
}

func TestTheLastGoodHostComesFirst(t *testing.T) {
	t.Parallel()
	const away = 1
	settings := behind(servers.Patient(servers.Settings(t)), fmt.Sprint("127.0.0.1:", away))
	shared := postgres.NewServers(servers.Logger(t))
	first, second := open(t, shared, settings), open(t, shared, settings)
	acquire(t, first)
	for _, pool := range []*pgxpool.Pool{first, second} {
		c := pool.Config()
		servers.NoError(t, c.BeforeConnect(t.Context(), c.ConnConfig))
		if c.ConnConfig.Port == away {
			t.Error("it is the one that is away")
		}
	}
}

// Without a connection to spare: pgx alone would close the lost one for 15 s.
func TestAPoolWhoseServerIsLostSoonHasAConnectionToAnother(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*fleet.Tap){
		"nobody answers":               func(tap *fleet.Tap) { tap.Vanish(t) },
		"somebody accepts connections": func(tap *fleet.Tap) { tap.Cut(t) },
	} {
		servers.Eventually(t, what+", and a statement finds the other in time", func() bool { // on a slow machine not at once, with pgx alone never
			settings := servers.Settings(t)
			tap := fleet.NewTap(t, settings.Postgres.URL)
			first, err := url.Parse(tap.URL)
			servers.NoError(t, err)
			settings.Postgres.MaxConnections = 1
			db := servers.Pool(t, behind(settings, first.Host))
			conn, err := db.Acquire(t.Context())
			if err != nil {
				return false
			}
			connected := conn.Conn().PgConn().Conn().RemoteAddr().String()
			if conn.Release(); connected != first.Host {
				return false
			}
			lose(tap)
			lost := time.Now()
			bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := db.Ping(bounded); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			soon, cancel := context.WithDeadline(t.Context(), lost.Add(14*time.Second))
			defer cancel()
			return db.Ping(soon) == nil
		})
	}
}

func TestEachOfSeveralHostsHasTwoSeconds(t *testing.T) {
	t.Parallel()
	for hosts, want := range map[string]time.Duration{"one/": 5 * time.Second, "one,two/": 2 * time.Second, "one,two/?connect_timeout=7": 7 * time.Second} {
		pool, err := postgres.Open(t.Context(), config.Postgres{URL: "postgres://" + hosts, MaxConnections: 1}, "test")
		servers.NoError(t, err)
		t.Cleanup(pool.Close)
		if got := pool.Config().ConnConfig.ConnectTimeout; got != want {
			t.Errorf("%s: %s", hosts, got)
		}
	}
}

// A primary that was demoted, or one that an operator has made read-only, takes no write until the next connection.
func TestAReadOnlyErrorClosesItsConnection(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	settings.Postgres.MaxConnections = 1
	db := servers.Pool(t, settings)
	servers.Exec(t, db, `SET default_transaction_read_only = on`) // of this session
	_, err := db.Exec(t.Context(), `CREATE TABLE marks (n int)`)
	expectTransient(t, "a write", err, true)
	servers.Exec(t, db, `CREATE TABLE marks (n int)`)
}

func TestDroppedStartupParametersAreNamed(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	settings.Postgres.MaxConnections = 1
	db := servers.Pool(t, settings)
	servers.NoError(t, postgres.CheckSession(t.Context(), db))
	servers.Exec(t, db, `RESET ALL; SET lock_timeout = 0; SET jit = on`) // as after a pooler that drops two
	err := postgres.CheckSession(t.Context(), db)
	if err == nil || !strings.HasSuffix(err.Error(), `ALTER ROLE "triprize" SET jit = 'off'; ALTER ROLE "triprize" SET lock_timeout = '300000';`) {
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
	if p, err := s.Identify(t.Context(), open(t, s, settings)); err != nil || p != (postgres.Primary{}) {
		t.Errorf("it is %v, %v", p, err)
	}
	if text := log.String(); strings.Count(text, "does not say who it is") != 1 { // the connection, too, has found that
		t.Errorf("the log is %q", text)
	}
}

// A commit waits for a synchronous standby that is away, and the wait is cancelled, or its session terminated: it has
// committed here, and perhaps nowhere else.
func TestACommitThatNoLongerWaitsForItsStandbyHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	settings := servers.OwnPostgres(t)
	db, admin := servers.Pool(t, settings), servers.Pool(t, settings)
	servers.Exec(t, db, `CREATE TABLE marks (n serial)`)
	// A warning of another function, as of a database that must be vacuumed, breaks no connection.
	servers.Exec(t, db, `DO $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication due to user request'; END $$`)
	const insert = `INSERT INTO marks DEFAULT VALUES RETURNING n`
	paths := map[string]func(ctx context.Context) error{
		"a transaction": func(ctx context.Context) error {
			return postgres.InTx(ctx, db, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, insert); return err })
		},
		"a statement":            func(ctx context.Context) error { _, err := db.Exec(ctx, insert); return err },
		"a statement with a row": func(ctx context.Context) error { return db.QueryRow(ctx, insert).Scan(new(int)) },
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
			expectTransient(t, name+", "+end, err, true)
			if postgres.HadNoEffect(err) || postgres.NothingSent(err) {
				t.Errorf("%s, %s: %v proves that nothing was done", name, end, err)
			}
		}
	}
}
