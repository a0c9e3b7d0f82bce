package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/devstack"
	"triprize/internal/platform/schema"
	"triprize/internal/store/apikey"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "triprize-bin-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries.dir = dir
	fixture.Main(m, func() { _ = os.RemoveAll(dir) })
}

var binaries struct {
	sync.Once
	dir string
	err error
}

// bin returns the folder with the binaries, built once, with failpoints.
func bin(t *testing.T) string {
	t.Helper()
	binaries.Do(func() {
		_, binaries.err = devstack.Binaries(context.Background(), binaries.dir, "failpoint")
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return binaries.dir
}

// options choose how a system is made up.
type options struct {
	private    bool // servers of its own, which the test may restart and empty
	apis       int  // default 1
	workers    int  // default 1; negative: none
	schedulers int  // default 1; negative: none
	restart    time.Duration
	env        []string
	workerEnv  []string
}

// system is a running Triprize.
type system struct {
	*devstack.Fleet
	t        *testing.T
	stack    *devstack.Stack // of a private system
	settings config.Settings
	db       *pgxpool.Pool
	rdb      *redis.Client
	urls     []string
	operator string
	app      string
}

// start starts a system and stops it at the end of the test, which fails when
// an invariant is broken by then.
func start(t *testing.T, o options) *system {
	t.Helper()
	s := &system{t: t, settings: fixture.Defaults(t)}
	if o.private {
		s.startServers()
	} else {
		s.settings = fixture.Settings(t)
	}
	s.db, s.rdb = fixture.Pool(t, s.settings), fixture.Redis(t, s.settings)
	s.makeKeys()
	logs := filepath.Join(t.TempDir(), "log")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Fleet = &devstack.Fleet{BinDir: bin(t), LogDir: logs, Logger: fixture.Logger(t), Restart: o.restart, Env: append([]string{
		"TRIPRIZE_POSTGRES_URL=" + s.settings.Postgres.URL, "TRIPRIZE_REDIS_URL=" + s.settings.Redis.URL,
		"TRIPRIZE_REDIS_NAMESPACE=" + s.settings.Redis.Namespace, "TRIPRIZE_DRAW_SECRET_KEY=" + s.settings.Draw.SecretKey,
		"TRIPRIZE_LOG_FORMAT=text", "TRIPRIZE_LIMITS_USER_RATE=0",
	}, o.env...)}
	t.Cleanup(s.end)
	for range max(o.apis, 1) {
		s.startAPI()
	}
	for range count(o.workers) {
		s.startWorker(o.workerEnv...)
	}
	for range count(o.schedulers) {
		if _, err := s.StartScheduler(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// count reads an option whose zero value means one.
func count(n int) int {
	if n == 0 {
		return 1
	}
	return max(n, 0)
}

func (s *system) startServers() {
	s.t.Helper()
	ctx := context.Background()
	var err error
	if s.stack, err = devstack.Start(ctx, devstack.Options{Unsafe: true}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.stack.Stop(); err != nil {
			s.t.Error(err)
		}
	})
	if err := s.stack.Postgres.CreateDatabase(ctx, "triprize"); err != nil {
		s.t.Fatal(err)
	}
	s.settings.Postgres.URL, s.settings.Redis.URL = s.stack.Postgres.URL("triprize"), s.stack.Redis.URL()
	m, err := schema.New(fixture.Pool(s.t, s.settings))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if _, err := m.Up(ctx); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) makeKeys() {
	s.t.Helper()
	var err error
	if s.operator, err = apikey.Create(s.t.Context(), s.db, apikey.Operator, "ops"); err == nil {
		s.app, err = apikey.Create(s.t.Context(), s.db, apikey.App, "shop")
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// newKey makes an app's key of another client.
func (s *system) newKey(client string) string {
	s.t.Helper()
	key, err := apikey.Create(s.t.Context(), s.db, apikey.App, client)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

func (s *system) startAPI(env ...string) *devstack.Child {
	s.t.Helper()
	address, err := devstack.FreeAddress()
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := s.StartAPI(address, env...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.urls = append(s.urls, "http://"+address)
	if err := devstack.AwaitHTTP(s.t.Context(), "http://"+address+"/readyz"); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *system) startWorker(env ...string) *devstack.Child {
	s.t.Helper()
	c, err := s.StartWorker(env...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// end stops the processes, shows their logs when the test failed, and audits.
func (s *system) end() {
	if err := s.Fleet.Stop(); err != nil {
		s.t.Error(err)
	}
	fixture.Sound(s.t, s.db)
	for _, breach := range contractOf.of(hosts(s.urls)) {
		s.t.Errorf("against the contract: %s", breach)
	}
	if !s.t.Failed() {
		return
	}
	files, _ := filepath.Glob(filepath.Join(s.LogDir, "*.log"))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		s.t.Logf("%s:\n%s", filepath.Base(file), tail(data, 4000))
	}
}

func hosts(urls []string) []string {
	list := make([]string, len(urls))
	for i, u := range urls {
		list[i] = strings.TrimPrefix(u, "http://")
	}
	return list
}

func tail(data []byte, n int) []byte { return data[max(0, len(data)-n):] }

// eventually waits until done, or fails the test.
func eventually(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// campaign publishes a campaign with one prize a layer.
func (s *system) campaign(baseLength int) uuid.UUID {
	s.t.Helper()
	return fixture.Campaign(s.t, s.db, fixture.Draft(baseLength))
}
