package servers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/redisx"
)

// The variables that name servers for the tests.
const (
	PostgresVariable = "TRIPRIZE_TEST_POSTGRES_URL"
	RedisVariable    = "TRIPRIZE_TEST_REDIS_URL"

	// Every run of the tests has another value. Go keeps the results of a package, and
	// runs its tests again when a variable that they read has changed: so it keeps
	// those only that do not depend on servers, in which it sees no change.
	runVariable = "TRIPRIZE_TEST_RUN"
)

var private struct {
	once  sync.Once
	stack *devstack.Stack
	err   error
}

// Main runs the tests of a package, stops the servers that were started for
// them, and does what else is to be done at the end.
func Main(m interface{ Run() int }, end ...func()) {
	redisx.LogTo(slog.New(slog.DiscardHandler)) // many tests take Redis away
	status := m.Run()
	for _, do := range end {
		do()
	}
	if private.stack != nil {
		if err := private.stack.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(status)
}

// urls returns the URLs of the servers for the tests.
func urls(t testing.TB) (postgresURL, redisURL string) {
	t.Helper()
	_ = os.Getenv(runVariable)
	postgresURL, redisURL = os.Getenv(PostgresVariable), os.Getenv(RedisVariable)
	if postgresURL != "" && redisURL != "" {
		return postgresURL, redisURL
	}
	private.once.Do(func() {
		private.stack, private.err = devstack.Start(context.Background(), devstack.Options{Unsafe: true})
	})
	if private.err != nil {
		t.Fatal(private.err)
	}
	return private.stack.Postgres.URL("postgres"), private.stack.Redis.URL()
}

// Settings returns the default settings, with a fresh database and a namespace
// of its own.
func Settings(t testing.TB) config.Settings {
	t.Helper()
	postgresURL, redisURL := urls(t)
	settings := Defaults(t)
	settings.Postgres.URL = newDatabase(t, postgresURL)
	settings.Redis.URL = redisURL
	settings.Redis.Namespace = "test-" + uuid.NewString()
	return settings
}

var defaults struct {
	once     sync.Once
	settings config.Settings
	err      error
}

// Defaults returns the default settings, without servers.
func Defaults(t testing.TB) config.Settings {
	t.Helper()
	defaults.once.Do(func() { defaults.settings, defaults.err = loadDefaults(t.TempDir() + "/settings.yaml") })
	if defaults.err != nil {
		t.Fatal(defaults.err)
	}
	return defaults.settings
}

func loadDefaults(file string) (config.Settings, error) {
	text := "postgres: {url: 'postgres://nowhere'}\nredis: {url: 'redis://nowhere'}\ndraw: {secret_key: '" + strings.Repeat("5a", 32) + "'}\n" +
		"beacon: {default: false, relays: ''}\n" // no test asks the real one
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return config.Settings{}, err
	}
	return config.Load(file)
}

// Pool opens a pool with the given settings until the test ends.
func Pool(t testing.TB, settings config.Settings) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(context.Background(), settings.Postgres, "triprize-test")
	NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Redis opens a client with the given settings until the test ends.
func Redis(t testing.TB, settings config.Settings) *redis.Client {
	t.Helper()
	client, err := redisx.Open(settings.Redis, "triprize-test")
	NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// OwnRedis starts a server that is this test's alone, to be killed or stopped,
// and returns the folder with its data.
func OwnRedis(t testing.TB) (server *devstack.Redis, data string) {
	t.Helper()
	dir := t.TempDir()
	server, err := devstack.StartRedis(context.Background(), dir, devstack.Options{Unsafe: true}, Logger(t))
	NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return server, dir + "/redis/appendonlydir"
}

// DB returns a pool on a fresh database, with patient settings.
func DB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Pool(t, Patient(Settings(t)))
}

// Patient returns settings under which nothing is given up because a machine is slow:
// a test may hold locks in Postgres, and wait for them, for as long as it takes.
func Patient(settings config.Settings) config.Settings {
	p := &settings.Postgres
	p.ConnectTimeout, p.StatementTimeout, p.LockTimeout, p.IdleInTransactionTimeout = Patience, Patience, Patience, Patience
	settings.Redis.Timeout = Patience
	settings.Scheduler.SweepTimeout = Patience
	return settings
}

// Logger returns a logger that writes to the test's log.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// RedisSettings returns the default settings with a namespace of its own on Redis,
// for tests that need no database.
func RedisSettings(t testing.TB) config.Settings {
	t.Helper()
	_, url := urls(t)
	settings := Defaults(t)
	settings.Redis.URL, settings.Redis.Namespace = url, "test-"+uuid.NewString()
	return settings
}
