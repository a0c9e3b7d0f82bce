package devkit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/schema"
	"triprize/sandbox/drandsim"
)

// environment is the whole system on one machine: private servers and the real
// binaries as child processes.
type environment struct {
	dir     string
	listen  string
	queue   string // that of purchases
	fleet   *devstack.Fleet
	db      *pgxpool.Pool
	keys    keys
	own     config.Overrides  // settings of its user, instead of ours
	sandbox sandbox           // beside the fleet
	beacon  *drandsim.Network // relays beside the fleet; nil: none

	mu      sync.Mutex
	running bool // dev.json is kept current
}

// keys authenticate against the environment.
type keys struct {
	Operator string `json:"operator_key"`
	App      string `json:"app_key"`
}

// about is dev.json: where everything is, for other programs.
type about struct {
	APIURL      string `json:"api_url"`
	PostgresURL string `json:"postgres_url"`
	RedisURL    string `json:"redis_url"`
	keys
	SandboxURL  string       `json:"sandbox_url"` // of the simulator of Stripe; see docs/test-cards.md
	SandboxKey  string       `json:"sandbox_key"`
	Beacon      *aboutBeacon `json:"beacon,omitempty"`
	PIDs        pids         `json:"pids"`
	MetricsURLs []string     `json:"metrics_urls"` // of the api, the workers and the scheduler, in this order
}

type pids struct {
	API       []int `json:"api"`
	Worker    []int `json:"worker"`
	Scheduler []int `json:"scheduler"`
	Postgres  int   `json:"postgres"`
	Redis     int   `json:"redis"`

	PostgresPrimary int   `json:"postgres_primary,omitempty"`
	RedisPrimary    int   `json:"redis_primary,omitempty"` // of a Cluster: which has the queue of purchases
	Servers         []int `json:"servers"`                 // all of Postgres and Redis, and Sentinels
}

const (
	aboutFile    = "dev.json"
	databaseName = "triprize"
	restartAfter = time.Second
)

// startEnvironment starts everything, in order: servers, simulators, schema, keys, fleet.
// servers has their folder and kinds; no folder means a throw-away one. With beacon, relays of test rounds are beside it. If
// another program listens on the address, it fails before it starts anything. If the folder
// has a dev.json, that program may be the api of a killed run, so leftovers are stopped
// before this check.
func startEnvironment(ctx context.Context, servers devstack.Options, listen string, workers int, beacon bool, own config.Overrides, progress io.Writer) (*environment, error) {
	e := &environment{listen: listen, own: own}
	if _, err := os.Stat(filepath.Join(servers.Dir, aboutFile)); err != nil {
		if err := e.checkListen(ctx); err != nil {
			return nil, err
		}
	}
	logger := slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelWarn}))
	servers.Restart, servers.Changed, servers.Logger = restartAfter, e.describe, logger
	stack, err := devstack.Start(ctx, servers)
	if err != nil {
		return nil, err
	}
	e.dir = stack.Dir
	e.fleet = &devstack.Fleet{LogDir: filepath.Join(e.dir, "log"), Restart: restartAfter, Scraped: true, Changed: e.describe, Logger: logger,
		Beside: []io.Closer{leftover(filepath.Join(e.dir, aboutFile))}, Stack: stack}
	if err := e.start(ctx, workers, beacon); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	e.describe()
	return e, nil
}

// start starts what needs the servers.
func (e *environment) start(ctx context.Context, workers int, beacon bool) error {
	if err := e.stopLeftovers(); err != nil {
		return err
	}
	if err := e.checkListen(ctx); err != nil {
		return err
	}
	if err := e.startSandbox(ctx); err != nil {
		return err
	}
	if beacon {
		if err := e.startBeacon(ctx); err != nil {
			return err
		}
	}
	if err := e.prepare(ctx); err != nil {
		return err
	}
	return e.startFleet(ctx, workers)
}

// checkListen fails when another program listens on the address. It replaces port
// 0 by a free port.
func (e *environment) checkListen(ctx context.Context) error {
	if host, port, _ := net.SplitHostPort(e.listen); port == "0" { // not the kernel's choice: a connection could take it meanwhile
		free, err := devstack.FreeAddress()
		if err != nil {
			return err
		}
		_, port, _ = net.SplitHostPort(free)
		e.listen = net.JoinHostPort(host, port)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.listen)
	if err != nil {
		return inUse(e.listen, err)
	}
	return listener.Close()
}

// stopLeftovers ends the processes of a killed run, whose pids are in its dev.json,
// and removes that file.
func (e *environment) stopLeftovers() error {
	file := filepath.Join(e.dir, aboutFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil //nolint:nilerr // no file, no leftovers
	}
	var old about
	if err := json.Unmarshal(data, &old); err == nil {
		for kind, pids := range map[string][]int{"api": old.PIDs.API, "worker": old.PIDs.Worker, "scheduler": old.PIDs.Scheduler} {
			for _, pid := range pids {
				if err := devstack.StopProcess(pid, string(filepath.Separator)+kind, syscall.SIGTERM); err != nil {
					return err
				}
			}
		}
	}
	return os.Remove(file)
}

// prepare migrates the database and loads or creates the API keys.
func (e *environment) prepare(ctx context.Context) error {
	if err := e.fleet.Stack.Postgres.CreateDatabase(ctx, databaseName); err != nil {
		return err
	}
	if err := e.writeSettings(); err != nil {
		return err
	}
	settings, err := config.LoadFrom(e.settingsFile(), nil)
	if err != nil {
		return err
	}
	e.queue = queue.Name(settings.Redis.Namespace, string(job.KindPurchase))
	settings.Postgres.StatementTimeout = time.Hour // of the tool's own sessions: a release may find a folder with much data
	if e.db, err = postgres.Open(ctx, settings.Postgres, "triprize-dev"); err != nil {
		return err
	}
	if err := schema.Migrate(ctx, e.db); err != nil {
		return err
	}
	return e.loadKeys(ctx)
}

func (e *environment) settingsFile() string { return filepath.Join(e.dir, "triprize.yaml") }

// reserved are the settings that an environment chooses for itself: its servers, addresses
// and keys. With a beacon it chooses the chain, too.
func reserved(beacon bool) []string {
	keys := []string{"postgres.url", "redis.url", "locks.redis_urls", "api.listen", "api.metrics_listen", "worker.listen", "scheduler.listen", "draw.secret_key",
		"payments.allow_test", "payments.stripe.key", "payments.stripe.url", "payments.stripe.webhook_secret", "payments.stripe.account"}
	if beacon {
		keys = append(keys, "beacon.relays", "beacon.chain")
	}
	return keys
}

// writeSettings writes the settings of the environment to its folder, so that other
// commands can use them with --config.
func (e *environment) writeSettings() error {
	secret := filepath.Join(e.dir, "draw.key")
	if _, err := os.Stat(secret); err != nil {
		if err := os.WriteFile(secret, []byte(keyring.NewKey()+"\n"), 0o600); err != nil {
			return err
		}
	}
	key, err := os.ReadFile(secret)
	if err != nil {
		return err
	}
	tokens, err := e.tokenSettings()
	if err != nil {
		return err
	}
	text, err := e.own.Over([]byte("log: {format: text}\n" +
		"postgres: {url: '" + e.fleet.Stack.PostgresURL(databaseName) + "', require_sync_standby: " + strconv.FormatBool(e.fleet.Stack.Standby != nil) + "}\n" +
		"redis: {url: '" + e.fleet.Stack.RedisURL() + "'}\n" +
		"locks: {redis_urls: '" + e.fleet.Stack.LockURLs() + "'}\n" +
		"draw: {secret_key: '" + strings.TrimSpace(string(key)) + "'}\n" +
		"webhooks: {allow_networks: '127.0.0.0/8,::1/128'}\n" + // receivers on this machine
		"api: {cors_origins: 'http://localhost:*,http://127.0.0.1:*'}\n" + // pages that are developed on it
		tokens + e.beaconSettings() + e.sandbox.settings()))
	if err != nil {
		return err
	}
	return os.WriteFile(e.settingsFile(), append([]byte("# Written by triprize-dev dev at every start. Settings of your own: --config FILE.\n"), text...), 0o600)
}

// tokenSettings are the lines of the settings file by which triprize-dev token is an issuer, unless
// its user has one. The secret stays that of the folder, and so do the tokens.
func (e *environment) tokenSettings() (string, error) {
	if e.own.Has("tokens.hs256_secret") || e.own.Has("tokens.jwks_url") {
		return "", nil
	}
	secret, err := keptSecret(e.dir, "token.secret", "token_secret_")
	return "tokens: {issuer: triprize-dev, audience: triprize, client: dev-app, hs256_secret: '" + secret + "'}\n", err
}

// loadKeys reads the API keys of this folder, or creates them.
func (e *environment) loadKeys(ctx context.Context) error {
	file := filepath.Join(e.dir, "keys.json")
	if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &e.keys) == nil {
		verifier := key.NewVerifier(e.db, 0) //nolint:contextcheck // uses are written when no request waits
		defer verifier.Close()               //nolint:contextcheck // the last uses are written after ctx has ended
		_, operatorErr := verifier.Verify(ctx, e.keys.Operator)
		_, appErr := verifier.Verify(ctx, e.keys.App)
		if operatorErr == nil && appErr == nil {
			return nil
		}
	}
	var err error
	if e.keys.Operator, err = key.Create(ctx, e.db, key.Operator, "dev-operator"); err != nil {
		return err
	}
	if e.keys.App, err = key.Create(ctx, e.db, key.App, "dev-app"); err != nil {
		return err
	}
	return writeJSON(file, e.keys)
}

func (e *environment) startFleet(ctx context.Context, workers int) error {
	bin := filepath.Join(e.dir, "bin")
	for _, dir := range []string{bin, e.fleet.LogDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	var err error
	if e.fleet.BinDir, err = devstack.Binaries(ctx, bin); err != nil {
		return err
	}
	e.fleet.Env = []string{config.FileVariable + "=" + e.settingsFile()}
	if err := e.startProcesses(workers); err != nil {
		return err
	}
	return e.fleet.AwaitReady(ctx)
}

// startProcesses keeps describe waiting: it reads the lists that grow here.
func (e *environment) startProcesses(workers int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = true
	_, err := e.fleet.StartAPI(e.listen)
	for range workers {
		if err == nil {
			_, err = e.fleet.StartWorker()
		}
	}
	if err == nil {
		_, err = e.fleet.StartScheduler()
	}
	return err
}

func (e *environment) url() string { return "http://" + e.listen }

// describe keeps dev.json current.
func (e *environment) describe() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.running {
		return
	}
	stack := e.fleet.Stack
	running := pids{API: devstack.PIDs(e.fleet.APIs), Worker: devstack.PIDs(e.fleet.Workers), Scheduler: devstack.PIDs(e.fleet.Schedulers),
		Postgres: stack.Postgres.PID(), Redis: stack.Redis.PID(), Servers: stack.PIDs()}
	running.PostgresPrimary, running.RedisPrimary = stack.Primaries(e.queue)
	_ = writeJSON(filepath.Join(e.dir, aboutFile), about{
		APIURL: e.url(), PostgresURL: stack.PostgresURL(databaseName), RedisURL: stack.RedisURL(), keys: e.keys,
		SandboxURL: e.sandbox.URL, SandboxKey: e.sandbox.key, Beacon: e.aboutBeacon(),
		PIDs:        running,
		MetricsURLs: e.fleet.MetricsURLs,
	}) // it can hardly fail; if the disk is full, the servers report it
}

// stop stops everything.
func (e *environment) stop() error {
	e.mu.Lock()
	e.running = false
	e.mu.Unlock()
	if e.db != nil {
		e.db.Close()
	}
	return e.fleet.Stop()
}

// leftover is a file for the next run, in case that this one is killed: it is removed when
// the processes have ended.
type leftover string

// Close removes the file.
func (l leftover) Close() error {
	_ = os.Remove(string(l))
	return nil
}

// writeJSON replaces a file in one step; only its owner can read it.
func writeJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}
