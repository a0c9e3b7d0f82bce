package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/config"
	"triprize/internal/platform/devstack"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/simulator/drandsim"
	"triprize/internal/store/apikey"
)

// environment is the whole system on one machine: private servers and the real
// binaries as child processes.
type environment struct {
	dir    string
	listen string
	stack  *devstack.Stack
	fleet  *devstack.Fleet
	db     *pgxpool.Pool
	keys   keys
	cards  *cards            // the sandbox beside the fleet
	beacon *drandsim.Network // relays beside the fleet; nil: none
	scrape []string          // where api, workers and scheduler show their metrics

	mu      sync.Mutex
	stopped bool
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
}

const (
	aboutFile    = "dev.json"
	databaseName = "triprize"
	restartAfter = time.Second
)

// startEnvironment starts everything, in order: servers, schema, keys, fleet.
// dir empty means a throw-away folder. With beacon, relays of test rounds are beside it. If another program listens on the address,
// it fails before it starts anything. If the folder has a dev.json, that program
// may be the api of a killed run, so leftovers are stopped before this check.
func startEnvironment(ctx context.Context, dir, listen string, workers int, beacon bool, progress io.Writer) (*environment, error) {
	e := &environment{listen: listen}
	if _, err := os.Stat(filepath.Join(dir, aboutFile)); err != nil {
		if err := e.checkListen(ctx); err != nil {
			return nil, err
		}
	}
	logger := slog.New(slog.NewTextHandler(progress, &slog.HandlerOptions{Level: slog.LevelWarn}))
	stack, err := devstack.Start(ctx, devstack.Options{Dir: dir, Restart: restartAfter, Changed: e.describe, Logger: logger})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.stack, e.dir = stack, stack.Dir
	e.mu.Unlock()
	for _, step := range []func() error{
		e.stopLeftovers,
		func() error { return e.checkListen(ctx) },
		func() error { return e.startCards(ctx, logger) },
		func() error {
			if beacon {
				return e.startBeacon(ctx)
			}
			return nil
		},
		func() error { return e.prepare(ctx) },
		func() error { return e.startFleet(ctx, workers, logger) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, e.stop()) //nolint:contextcheck // the end has a time of its own
		}
	}
	e.describe()
	return e, nil
}

// checkListen fails when another program listens on the address. It replaces port
// 0 by a free port.
func (e *environment) checkListen(ctx context.Context) error {
	listener, err := listenOn(ctx, e.listen)
	if err != nil {
		return err
	}
	if _, port, _ := net.SplitHostPort(e.listen); port == "0" {
		e.listen = listener.Addr().String()
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
	if err := e.stack.Postgres.CreateDatabase(ctx, databaseName); err != nil {
		return err
	}
	settings, err := config.Load(e.settingsFile())
	if err != nil {
		return err
	}
	settings.Postgres.StatementTimeout = migrationTimeout // of the tool's own sessions: a release may find a folder with much data
	if e.db, err = postgres.Open(ctx, settings.Postgres, "triprize-dev"); err != nil {
		return err
	}
	m, err := schema.New(e.db)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	if _, err := m.Up(ctx); err != nil {
		return err
	}
	return e.loadKeys(ctx)
}

// settingsFile writes the settings of the environment to its folder, so that other
// commands can use them with --config.
func (e *environment) settingsFile() string {
	file := filepath.Join(e.dir, "triprize.yaml")
	secret := filepath.Join(e.dir, "draw.key")
	if _, err := os.Stat(secret); err != nil {
		_ = os.WriteFile(secret, []byte(keyring.NewKey()+"\n"), 0o600) // without it the key is empty, which the processes report
	}
	key, _ := os.ReadFile(secret)
	text := "# Written by triprize dev at every start.\n" +
		"log: {format: text}\n" +
		"postgres: {url: '" + e.stack.Postgres.URL(databaseName) + "'}\n" +
		"redis: {url: '" + e.stack.Redis.URL() + "'}\n" +
		"draw: {secret_key: '" + strings.TrimSpace(string(key)) + "'}\n" +
		"webhooks: {allow_networks: '127.0.0.0/8,::1/128'}\n" + // receivers on this machine
		e.beaconSettings() + e.cards.settings()
	_ = os.WriteFile(file, []byte(text), 0o600) // config.Load says what is wrong with it
	return file
}

// loadKeys reads the API keys of this folder, or creates them.
func (e *environment) loadKeys(ctx context.Context) error {
	file := filepath.Join(e.dir, "keys.json")
	if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &e.keys) == nil {
		verifier := apikey.NewVerifier(e.db, 0) //nolint:contextcheck // uses are written when no request waits
		defer verifier.Close()
		_, operatorErr := verifier.Verify(ctx, e.keys.Operator)
		_, appErr := verifier.Verify(ctx, e.keys.App)
		if operatorErr == nil && appErr == nil {
			return nil
		}
	}
	var err error
	if e.keys.Operator, err = apikey.Create(ctx, e.db, apikey.Operator, "dev-operator"); err != nil {
		return err
	}
	if e.keys.App, err = apikey.Create(ctx, e.db, apikey.App, "dev-app"); err != nil {
		return err
	}
	return writeJSON(file, e.keys)
}

func (e *environment) startFleet(ctx context.Context, workers int, logger *slog.Logger) error {
	bin := filepath.Join(e.dir, "bin")
	logs := filepath.Join(e.dir, "log")
	for _, dir := range []string{bin, logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	bin, err := devstack.Binaries(ctx, bin)
	if err != nil {
		return err
	}
	fleet := &devstack.Fleet{BinDir: bin, LogDir: logs, Env: []string{config.FileVariable + "=" + e.settingsFile()},
		Restart: restartAfter, Changed: e.describe, Logger: logger}
	e.mu.Lock()
	e.fleet = fleet
	e.mu.Unlock()
	metrics, err := e.scraped()
	if err != nil {
		return err
	}
	api, err := fleet.StartAPI(e.listen, "TRIPRIZE_API_METRICS_LISTEN="+metrics)
	if err != nil {
		return err
	}
	first := api.Exited()
	for range workers {
		if err := e.startBeside(fleet.StartWorker, "TRIPRIZE_WORKER_LISTEN="); err != nil {
			return err
		}
	}
	if err := e.startBeside(fleet.StartScheduler, "TRIPRIZE_SCHEDULER_LISTEN="); err != nil {
		return err
	}
	if err := awaitReady(ctx, api, first, e.url()); err != nil {
		return fmt.Errorf("%w; the logs are in %s:\n%s", err, logs, lastLines(filepath.Join(logs, api.Name+".log")))
	}
	return nil
}

var errEnded = errors.New("the api ended instead of getting ready")

// awaitReady waits until the api is ready. It fails when the api's first process
// exits by itself, because the next ones would fail for the same reason. A killed
// process is started again, so waiting goes on.
func awaitReady(ctx context.Context, api *devstack.Child, first <-chan struct{}, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-first:
			if !api.Killed() {
				cancel(errEnded)
			}
		case <-ctx.Done():
		}
	}()
	err := devstack.AwaitHTTP(ctx, url+"/readyz")
	select {
	case <-first:
		if !api.Killed() { // then another program has answered
			return errEnded
		}
	default:
	}
	return err
}

// lastLines returns the end of a log, which says why a process has ended; empty if
// it cannot be read.
func lastLines(file string) string {
	const most = 2000
	data, _ := os.ReadFile(file)
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}

// startBeside starts a worker or a scheduler, with an address for its metrics.
func (e *environment) startBeside(start func(env ...string) (*devstack.Child, error), variable string) error {
	address, err := e.scraped()
	if err != nil {
		return err
	}
	_, err = start(variable + address)
	return err
}

// scraped returns an address for the metrics of a process, and notes it for dev.json.
func (e *environment) scraped() (address string, err error) {
	if address, err = devstack.FreeAddress(); err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.scrape = append(e.scrape, "http://"+address+"/metrics")
	return address, nil
}

func (e *environment) url() string { return "http://" + e.listen }

// describe keeps dev.json current.
func (e *environment) describe() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fleet == nil || e.stopped {
		return
	}
	of := func(children []*devstack.Child) []int {
		running := []int{}
		for _, c := range children {
			if pid := c.PID(); pid != 0 {
				running = append(running, pid)
			}
		}
		return running
	}
	_ = writeJSON(filepath.Join(e.dir, aboutFile), about{
		APIURL: e.url(), PostgresURL: e.stack.Postgres.URL(databaseName), RedisURL: e.stack.Redis.URL(), keys: e.keys,
		SandboxURL: e.cards.url, SandboxKey: e.cards.key, Beacon: e.aboutBeacon(),
		PIDs:        pids{of(e.fleet.APIs), of(e.fleet.Workers), of(e.fleet.Schedulers), e.stack.Postgres.PID(), e.stack.Redis.PID()},
		MetricsURLs: e.scrape,
	}) // it can hardly fail; if the disk is full, the servers report it
}

// stop stops everything, the fleet first.
func (e *environment) stop() error {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	var failed []error
	if e.fleet != nil {
		failed = append(failed, e.fleet.Stop())
	}
	if e.cards != nil {
		failed = append(failed, e.cards.stop())
	}
	if e.beacon != nil {
		failed = append(failed, e.beacon.Close())
	}
	if e.db != nil {
		e.db.Close()
	}
	_ = os.Remove(filepath.Join(e.dir, aboutFile))
	return errors.Join(append(failed, e.stack.Stop())...)
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
