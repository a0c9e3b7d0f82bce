package fleet

import (
	"cmp"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/entry/boot"
	"triprize/internal/entry/httpapi"
	"triprize/internal/key"
	"triprize/internal/platform/config"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
	"triprize/sandbox/stripesim"
)

// Options choose how a system is made up.
type Options struct {
	Binaries   bool          // real processes, with failpoints; otherwise they run inside the test
	Private    bool          // servers of its own, which the test may restart and empty
	Standby    bool          // the private Postgres has a synchronous standby, which the processes require
	Redis      string        // kind of the private Redis, as of devstack.Options; empty: single
	APIs       int           // default 1
	Workers    int           // default 1; negative: none
	Schedulers int           // default 1; negative: none
	Restart    time.Duration // pause before a real process that died is started again; 0: it stays dead
	Env        []string      // settings of all processes, as TRIPRIZE_… variables
	WorkerEnv  []string
	Sandbox    *stripesim.Settings // of a simulator of Stripe beside the fleet; nil: there is none, and no cards
	Beacon     int                 // relays of a chain of test rounds, of one second each, beside the fleet; 0: no campaign can have a beacon
}

// unhurried are the settings that end a wait, set so high that no machine is too
// slow: a test then sees only effects of the system. A test of one of
// these bounds sets it itself.
var unhurried = []string{
	"TRIPRIZE_POSTGRES_CONNECT_TIMEOUT=1m", "TRIPRIZE_POSTGRES_STATEMENT_TIMEOUT=10m", "TRIPRIZE_POSTGRES_LOCK_TIMEOUT=10m",
	"TRIPRIZE_POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT=30s", // some tests wait until Postgres ends the transaction of a stopped process
	"TRIPRIZE_ACCEPT_TIMEOUT=1m", "TRIPRIZE_ACCEPT_LONGEST_WAIT=24h", "TRIPRIZE_HOLDS_TIMEOUT=1m", "TRIPRIZE_HOLDS_TTL=10m",
	"TRIPRIZE_WALLETS_TIMEOUT=1m", "TRIPRIZE_REDIS_TIMEOUT=1m",
	"TRIPRIZE_LIMITS_BUDGET=1m", "TRIPRIZE_API_MAX_WAIT=3m", "TRIPRIZE_API_REQUEST_TIMEOUT=10m",
	"TRIPRIZE_API_READ_TIMEOUT=10m", "TRIPRIZE_API_WRITE_TIMEOUT=10m", "TRIPRIZE_API_IDLE_TIMEOUT=1h",
	"TRIPRIZE_API_SHUTDOWN_TIMEOUT=5m", "TRIPRIZE_WORKER_SHUTDOWN_TIMEOUT=5m", "TRIPRIZE_SCHEDULER_SHUTDOWN_TIMEOUT=5m",
}

// swift are the settings by which what a crash leaves behind is found in seconds.
var swift = []string{
	"TRIPRIZE_WORKER_HEARTBEAT_INTERVAL=500ms", "TRIPRIZE_WORKER_HEARTBEAT_TTL=3s",
	"TRIPRIZE_SWEEPS_LOST_JOBS_INTERVAL=500ms", "TRIPRIZE_SWEEPS_LOST_JOBS_BACKOFF=1500ms",
}

// System is a running Triprize.
type System struct {
	*devstack.Fleet // its real processes; nil when they run inside the test

	T        *testing.T
	Stack    *devstack.Stack // of a private system
	Settings config.Settings
	DB       *pgxpool.Pool
	Redis    redis.UniversalClient
	URLs     []string          // of the apis
	Sandbox  *Sandbox          // simulates Stripe; nil if the options have none
	Beacon   *drandsim.Network // simulates drand; nil if the options have none
	Operator string            // an operator's key
	App      string            // an app's key, of the client "shop"

	env     []string
	appURL  string            // of a private database, as the processes connect to it
	metrics map[string]string // where the apis show their metrics, by URL
	inside  []*inside
	life    testing.TB // what it ends with: the test, or all tests of the binary
	name    string     // of the test, as its requests have it

	shared *System // the system that this is a test's view of; nil: the test's own
	suffix string  // of the clients and users of a view
}

// Start starts a system and stops it at the end of the test, which fails when
// an invariant is broken by then.
func Start(t *testing.T, o Options) *System {
	t.Helper()
	s := &System{T: t, life: t, name: nameOf(t)}
	s.start(o)
	s.Operator, s.App = s.NewKeyOf(key.Operator, "ops"), s.NewKey("shop")
	return s
}

func (s *System) start(o Options) {
	s.T.Helper()
	s.Settings, s.metrics = servers.Defaults(s.T), make(map[string]string)
	if o.Private {
		s.startServers(o.Standby, o.Redis)
	} else {
		s.Settings = servers.Settings(s.life)
	}
	s.DB, s.Redis = servers.Pool(s.life, servers.Patient(s.Settings)), servers.Redis(s.life, servers.Patient(s.Settings))
	s.env = append([]string{
		"TRIPRIZE_POSTGRES_URL=" + cmp.Or(s.appURL, s.Settings.Postgres.URL), "TRIPRIZE_REDIS_URL=" + s.Settings.Redis.URL,
		"TRIPRIZE_REDIS_NAMESPACE=" + s.Settings.Redis.Namespace, "TRIPRIZE_DRAW_SECRET_KEY=" + s.Settings.Draw.SecretKey,
		"TRIPRIZE_LOG_FORMAT=text", "TRIPRIZE_LIMITS_USER_RATE=0", "TRIPRIZE_BEACON_DEFAULT=false", "TRIPRIZE_BEACON_RELAYS=",
		"TRIPRIZE_POSTGRES_REQUIRE_SYNC_STANDBY=" + strconv.FormatBool(o.Standby),
	}, slices.Concat(unhurried, swift, s.startSandbox(o.Sandbox), s.startBeacon(o.Beacon), o.Env)...)
	if o.Binaries {
		dir, err := Binaries()
		servers.NoError(s.T, err)
		s.Fleet = &devstack.Fleet{BinDir: dir, LogDir: s.T.TempDir(), Logger: servers.Logger(s.T), Restart: o.Restart, Env: s.env}
	}
	if s.life == testing.TB(s.T) {
		s.T.Cleanup(s.end)
	}
	for range max(o.APIs, 1) {
		s.RunAPI()
	}
	if s.Sandbox != nil {
		s.Sandbox.SendTo(s.URLs[0] + "/webhooks/stripe")
	}
	for range count(o.Workers) {
		s.RunWorker(o.WorkerEnv...)
	}
	for range count(o.Schedulers) {
		s.RunScheduler()
	}
}

// startSandbox starts the sandbox, if there is to be one, and returns the settings by
// which processes find it. Its webhooks go to the first api.
func (s *System) startSandbox(settings *stripesim.Settings) (env []string) {
	if settings == nil {
		return nil
	}
	s.T.Helper()
	s.Sandbox = NewSandbox(s.T, *settings)
	p := &s.Settings.Payments
	p.Stripe.Key, p.Stripe.URL, p.Stripe.WebhookSecret, p.ReturnURL = SandboxKey, s.Sandbox.URL, WebhookSecret, s.Sandbox.URL+"/returned"
	p.Stripe.MethodTypes = "card,konbini" // as the environment of the sandbox says
	return s.Sandbox.Env()
}

// count reads an option whose zero value means one.
func count(n int) int {
	if n == 0 {
		return 1
	}
	return max(n, 0)
}

func (s *System) startServers(standby bool, redis string) {
	s.T.Helper()
	ctx, options := s.T.Context(), devstack.Options{Unsafe: true, Redis: redis}
	if standby {
		options.Postgres = devstack.PostgresStandby
	}
	var err error
	s.Stack, err = devstack.Start(ctx, options)
	servers.NoError(s.T, err)
	s.T.Cleanup(func() { servers.NoError(s.T, s.Stack.Stop()) })
	servers.NoError(s.T, s.Stack.Postgres.CreateDatabase(ctx, "triprize"))
	s.Settings.Postgres.URL, s.Settings.Redis.URL = s.Stack.Postgres.URL("triprize"), s.Stack.RedisURL()
	s.appURL = makeAppRole(s.T, s.Settings.Postgres.URL)
	servers.NoError(s.T, schema.Migrate(ctx, servers.Pool(s.T, s.Settings)))
}

// NewKey makes an app's key of a client, whose name is that of [System.Client].
func (s *System) NewKey(client string) string {
	s.T.Helper()
	return s.NewKeyOf(key.App, client)
}

// NewKeyOf makes a key of a role.
func (s *System) NewKeyOf(role key.Role, client string) string {
	s.T.Helper()
	key, err := key.Create(s.T.Context(), s.DB, role, s.Client(client))
	servers.NoError(s.T, err)
	return key
}

// RunAPI starts a further api, waits until it is ready, and returns its real
// process, if it is one.
func (s *System) RunAPI(env ...string) (c *devstack.Child) {
	s.T.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(s.T, err)
	metrics, err := devstack.FreeAddress()
	servers.NoError(s.T, err)
	s.URLs = append(s.URLs, "http://"+address)
	s.metrics["http://"+address] = "http://" + metrics + "/metrics"
	env = append(slices.Clone(env), "TRIPRIZE_API_METRICS_LISTEN="+metrics) // tests share slices of settings
	if s.Fleet == nil {
		s.runInside("api", boot.API(httpapi.New), append(env, "TRIPRIZE_API_LISTEN="+address)...)
		err = devstack.AwaitHTTP(s.T.Context(), "http://"+address+"/readyz")
	} else if c, err = s.StartAPI(address, env...); err == nil {
		err = s.AwaitReady(s.T.Context())
	}
	servers.NoError(s.T, err)
	return c
}

// RunWorker starts a further worker, and returns its real process, if it is one.
func (s *System) RunWorker(env ...string) *devstack.Child {
	s.T.Helper()
	if s.Fleet == nil {
		s.runInside("worker", boot.Worker, env...)
		return nil
	}
	c, err := s.StartWorker(env...)
	servers.NoError(s.T, err)
	return c
}

// RunScheduler starts a further scheduler, and returns its real process, if it is one.
func (s *System) RunScheduler(env ...string) *devstack.Child {
	s.T.Helper()
	if s.Fleet == nil {
		s.runInside("scheduler", boot.Scheduler, env...)
		return nil
	}
	c, err := s.StartScheduler(env...)
	servers.NoError(s.T, err)
	return c
}

// end stops the processes, shows their logs when the test failed, and audits.
func (s *System) end() {
	s.stop()
	fixture.Sound(s.life, s.DB)
	if n := s.Deadlocks(); n != 0 {
		s.life.Errorf("%d deadlocks", n)
	}
	s.checkContract(append(hosts(s.URLs), s.name)...)
	if s.life.Failed() {
		s.showLogs()
	}
}

// stop stops the processes.
func (s *System) stop() {
	if s.Fleet != nil {
		servers.NoError(s.life, s.Fleet.Stop())
		return
	}
	for _, kind := range []string{"api", "scheduler", "worker"} { // those first that give work to the others
		s.StopAll(kind)
	}
}

// checkContract wants no breaches of the contract in the answers to a test, or of hosts.
func (s *System) checkContract(of ...string) {
	for _, breach := range contractOf.of(of) {
		s.life.Errorf("against the contract: %s", breach)
	}
}

func hosts(urls []string) []string {
	list := make([]string, len(urls))
	for i, u := range urls {
		list[i] = strings.TrimPrefix(u, "http://")
	}
	return list
}

// Ready waits until an api is ready, and returns what it says then. Its checks have two seconds, so one that is slow is not ready for a moment.
func (s *System) Ready(n int) (a Answer) {
	s.T.Helper()
	servers.Eventually(s.T, "the api is ready", func() bool {
		a = s.Do(n, "", http.MethodGet, "/readyz", nil, nil)
		return a.Status == http.StatusOK
	})
	return a
}

// Campaign publishes a campaign with one prize a layer.
func (s *System) Campaign(baseLength int) uuid.UUID {
	s.T.Helper()
	return fixture.Campaign(s.T, s.DB, fixture.Draft(baseLength))
}

// Log returns what a process has written: api-1, worker-2, …
func (s *System) Log(name string) []byte {
	s.T.Helper()
	data, err := s.log(name)
	servers.NoError(s.T, err)
	return data
}

// showLogs adds the end of every log to what the test says.
func (s *System) showLogs() {
	var names []string
	for _, p := range s.inside {
		names = append(names, p.name)
	}
	if s.Fleet != nil {
		files, _ := filepath.Glob(filepath.Join(s.LogDir, "*.log"))
		for _, file := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".log"))
		}
	}
	for _, name := range names {
		if data, err := s.log(name); err == nil {
			s.life.Logf("%s:\n%s", name, Tail(data, 4000))
		}
	}
}

// Tail returns the last n bytes.
func Tail(data []byte, n int) []byte { return data[max(0, len(data)-n):] }
