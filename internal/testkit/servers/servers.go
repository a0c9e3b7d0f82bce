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

var stack *devstack.Stack // that was started for the tests; nil: none

var private = sync.OnceValues(func() (_ *devstack.Stack, err error) {
	stack, err = devstack.Start(context.Background(), devstack.Options{Unsafe: true})
	return stack, err
})

// Main runs the tests of a package, stops the servers that were started for
// them, and does what else is to be done at the end.
func Main(m interface{ Run() int }, end ...func()) {
	redisx.LogTo(slog.New(slog.DiscardHandler)) // many tests take Redis away
	status := m.Run()
	for _, do := range end {
		do()
	}
	if stack != nil {
		if err := stack.Stop(); err != nil {
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
	own, err := private()
	NoError(t, err)
	return own.Postgres.URL("postgres"), own.Redis.URL()
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

// Defaults returns the default settings, without servers.
func Defaults(t testing.TB) config.Settings {
	t.Helper()
	settings, err := defaults()
	NoError(t, err)
	return settings
}

var defaults = sync.OnceValues(func() (config.Settings, error) {
	return config.LoadFrom("", []string{"TRIPRIZE_POSTGRES_URL=postgres://nowhere", "TRIPRIZE_REDIS_URL=redis://nowhere",
		"TRIPRIZE_DRAW_SECRET_KEY=" + strings.Repeat("5a", 32), "TRIPRIZE_BEACON_DEFAULT=false", "TRIPRIZE_BEACON_RELAYS="}) // no test asks the real one
})

// Pool opens a pool with the given settings until the test ends.
func Pool(t testing.TB, settings config.Settings) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(context.Background(), settings.Postgres, "triprize-test")
	NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Redis opens a client with the given settings until the test ends.
func Redis(t testing.TB, settings config.Settings) redis.UniversalClient {
	t.Helper()
	client, err := redisx.Open(settings.Redis, "triprize-test")
	NoError(t, err)
	client.AddHook(Before(oneSlot))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Keys returns the keys that match a pattern, in a Cluster those of all nodes.
func Keys(t testing.TB, rdb redis.UniversalClient, pattern string) (keys []string) {
	t.Helper()
	var mu sync.Mutex
	NoError(t, redisx.EachPrimary(context.WithoutCancel(t.Context()), rdb, func(ctx context.Context, one redis.UniversalClient) error {
		found, err := one.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, found...)
		return err
	}))
	return keys
}

// OwnRedis starts a server that is this test's alone, to be killed or stopped.
func OwnRedis(t testing.TB) *devstack.Redis {
	t.Helper()
	server, err := devstack.StartRedis(context.Background(), t.TempDir(), devstack.Options{Unsafe: true}, Logger(t))
	NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	return server
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
