package boot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"triprize/internal/domain/buildinfo"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/schema"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/tracing"
)

// Process has what every process needs.
type Process struct {
	Name     string
	Settings config.Settings
	Logger   *slog.Logger
	Registry *prometheus.Registry
	DB       *pgxpool.Pool
	Redis    redis.UniversalClient
	Locks    *lock.Locker
	Health   *telemetry.Health

	servers *postgres.Servers
	pools   []pgx.QueryTracer               // of all pools but the next
	apart   *pgxpool.Pool                   // one connection, for /readyz and its checks
	record  func(ctx context.Context) error // what must be recorded before the process serves; nil: nothing
	known   atomic.Bool
	refused atomic.Value // why Redis is not used, as logged last

	said       atomic.Pointer[queue.Description]
	keyRefused func() bool // by the payment provider; nil: this process uses none
	muteRedis  sync.Once   // logs that Redis is not asked whether it can fail over
}

// gcPercent returns by how much the heap of a process grows above the memory in use before the
// garbage collector runs. With Go's default of 100, a sixth of the api's processor time goes into
// collections, and into stacks that each of them shrinks. An api with 500 connections takes 145 MB;
// a worker keeps little and makes much garbage, and takes 85 MB.
func gcPercent(name string) int {
	if name == "worker" {
		return 400
	}
	return 180
}

// Main runs a process and exits with its status: 0 when run returns nil, 1 when
// it fails, 2 when flags or settings are wrong. The context of run ends with
// SIGINT or SIGTERM; a second signal ends the process at once.
func Main(name string, flags *flag.FlagSet, run func(ctx context.Context, p *Process) error) {
	file := flags.String("config", "", "settings file (default: $"+config.FileVariable+", or none)")
	version := flags.Bool("version", false, "print the version and exit")
	_ = flags.Parse(os.Args[1:]) // exits by itself
	if *version {
		fmt.Fprintln(os.Stdout, buildinfo.Line(name))
		os.Exit(0)
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q\n", name, flags.Arg(0))
		os.Exit(2)
	}
	settings, err := config.Load(*file)
	if err == nil {
		err = settings.Redis.Check()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s does not start:\n%v\n", name, err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent(name))
	}
	logger := telemetry.NewLogger(settings.Log, name, os.Stderr)
	slog.SetDefault(logger) // for libraries
	redisx.LogTo(logger)
	logger.Info("starting", "version", buildinfo.Version())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // after the first signal, a second one ends the process
	err = Run(ctx, name, settings, logger, run)
	telemetry.Flush(logger)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Run opens what a process needs and calls run. Postgres and Redis may be away at
// that time; run has to wait for Postgres itself (Await). Tests run several
// processes in one program.
func Run(ctx context.Context, name string, settings config.Settings, logger *slog.Logger, run func(context.Context, *Process) error) error {
	p := &Process{Name: name, Settings: settings, Logger: logger, Registry: telemetry.NewRegistry(), servers: postgres.NewServers(logger)}
	closeTracing, err := tracing.Open(settings.Tracing, name, buildinfo.Version(), logger) //nolint:contextcheck // the last spans are sent when ctx has ended
	if err != nil {
		return err
	}
	defer closeTracing()
	p.pools = append(tracing.SQL(), postgres.NewMetrics(p.Registry))
	if p.DB, err = p.servers.Open(ctx, settings.Postgres, "triprize-"+name, p.pools...); err != nil {
		return err
	}
	defer closePool(p.DB)
	if p.Redis, err = redisx.Open(settings.Redis, "triprize-"+name); err != nil {
		return err
	}
	defer func() { _ = p.Redis.Close() }()
	telemetry.RegisterPool(p.Registry, p.DB)
	apart := settings.Postgres // a check takes no connection from the work, and a pool that is all in use is no outage of Postgres
	apart.MaxConnections = 1
	if p.apart, err = p.servers.Open(ctx, apart, "triprize-"+name+"-readyz"); err != nil {
		return err
	}
	defer closePool(p.apart)
	checks := []telemetry.Check{
		{Name: "postgres", Required: true, Probe: p.checkPostgres},
		{Name: "redis", Probe: p.checkRedis},
	}
	quorum, closeLocks, err := p.openLocks()
	if err != nil {
		return err
	}
	defer closeLocks()
	if quorum {
		checks = append(checks, telemetry.Check{Name: "locks", Probe: p.Locks.Ping})
	}
	p.Health = telemetry.NewHealth(checks...)
	err = run(ctx, p)
	p.Logger.Info("stopped")
	return err
}

// checkPostgres distinguishes an old schema, and another branch, from a Postgres that does not answer.
func (p *Process) checkPostgres(ctx context.Context) error {
	if err := p.checkPrimary(ctx); errors.Is(err, postgres.ErrTwoBranches) {
		return fmt.Errorf("%w: %w", telemetry.ErrBranches, err)
	} else if err != nil {
		return err
	}
	err := schema.Check(ctx, p.apart)
	if errors.Is(err, schema.ErrOld) {
		return fmt.Errorf("%w: %w", telemetry.ErrMigrations, err)
	}
	return err
}

// probePostgres is what workers and schedulers ask each second: whether Postgres answers, and is the newest primary that
// this process knows. It asks neither Redis nor for the schema, so fifty idle workers cost little.
func (p *Process) probePostgres(ctx context.Context) error {
	found, err := p.servers.Identify(ctx, p.apart)
	if err != nil {
		return err
	}
	return p.servers.Meet(found)
}

// primaryTimeout bounds the read of the newest primary in Redis. Without Redis a process knows what it has seen itself.
const primaryTimeout = 500 * time.Millisecond

// checkPrimary returns postgres.ErrAnotherPrimary if the server is not the newest primary that this process or, by
// Redis, another one has seen.
//
// The newest primary has no TTL: while the old one is all that runs, hours must not make it the newest. So after a
// restore with other data, or from a backup that ends on a lower timeline, an operator deletes the key and then
// restarts the processes, which remember it too. A process that refuses its server does not write the key, so it
// stays deleted until a process accepts a server.
func (p *Process) checkPrimary(ctx context.Context) error {
	if p.Settings.Draw.SecretKey == "" { // a scheduler may have none
		return p.probePostgres(ctx)
	}
	timeout := cmp.Or(p.Settings.Redis.Timeout, primaryTimeout)
	reading, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	key, mac, known := p.Settings.Redis.Namespace+":primary", keyring.NewMAC(p.Settings.Draw.SecretKey), postgres.Primary{}
	sealed, err := p.Redis.Get(reading, key).Bytes()
	if value, ok := mac.Open(key, sealed); ok && json.Unmarshal(value, &known) == nil {
		p.servers.Adopt(known) // before this process connects
	}
	found, unknown := p.servers.Identify(ctx, p.apart)
	if unknown != nil || found == (postgres.Primary{}) {
		return unknown
	}
	if differs := p.servers.Meet(found); differs != nil {
		return differs
	}
	if newest := p.servers.Newest(); (err == nil || errors.Is(err, redis.Nil)) && known != newest {
		writing, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		value, _ := json.Marshal(newest)                             // integers and a text
		_ = p.Redis.Set(writing, key, mac.Seal(key, value), 0).Err() // the next check tries again
	}
	return nil
}

// checkRedis writes a key: a Redis that is full, read-only or loading may answer a PING, and carries no task. In a
// Cluster it writes one beside each queue.
func (p *Process) checkRedis(ctx context.Context) error {
	if err := p.checkKind(ctx); err != nil {
		if errors.Is(err, redisx.ErrKind) && p.refused.Swap(err.Error()) != err.Error() { // not with each check
			p.Logger.Error("Redis is not used", "error", err)
		}
		return err
	}
	namespace := p.Settings.Redis.Namespace
	keys := []string{namespace + ":health"}
	if _, ok := p.Redis.(*redis.ClusterClient); ok {
		for _, kind := range job.TaskKinds {
			keys = append(keys, namespace+":health:{"+queue.Name(namespace, string(kind))+"}")
		}
	}
	_, err := p.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Set(ctx, key, p.Name, time.Minute)
		}
		return nil
	})
	return err
}

// checkKind refuses a Redis of another kind than redis.url names. It asks until it has an answer.
func (p *Process) checkKind(ctx context.Context) error {
	if p.known.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Settings.Redis.Timeout, redisWait))
	defer cancel()
	err := redisx.CheckKind(ctx, p.Redis)
	if errors.Is(err, redisx.ErrKind) {
		return fmt.Errorf("setting redis.url (TRIPRIZE_REDIS_URL): %w", err)
	}
	if denied := redisx.CheckChannels(ctx, p.Redis, p.Settings.Redis.Namespace); redis.IsPermissionError(denied) && !p.known.Load() {
		p.Logger.Error("Redis takes no messages of this user", "error", denied, "do", redisx.AllowChannels)
	}
	p.known.Store(err == nil)
	return err
}

// redisWait bounds the question at the start.
const redisWait = time.Second

// Await waits until Postgres answers and has the schema that this program needs,
// for at most postgres.start_wait. The log and Health say what it waits for. A Redis of another kind than redis.url
// names is refused; one that is away, or fails over, is not waited for.
func (p *Process) Await(ctx context.Context) error {
	began, reason := time.Now(), ""
	var session error // what is wrong with the sessions of the pool
	err := postgres.Await(ctx, p.Settings.Postgres.StartWait,
		func(ctx context.Context) error {
			if err := p.checkPostgres(ctx); err != nil {
				return err
			}
			if session = postgres.CheckSession(ctx, p.DB); postgres.IsTransient(session) {
				return session
			}
			if session == nil && p.record != nil {
				return p.record(ctx)
			}
			return nil
		},
		func(err error) {
			what := "postgres"
			if errors.Is(err, schema.ErrOld) {
				what = "migrations"
			}
			p.Health.WaitFor(what)
			if what != reason {
				reason = what
				p.Logger.Warn("waiting to start", "for", what, "at_most", p.Settings.Postgres.StartWait.String(), "error", err)
			}
		})
	if err := cmp.Or(err, session); err != nil {
		return err
	}
	if err := p.checkKind(ctx); errors.Is(err, redisx.ErrKind) && !errors.Is(err, redisx.ErrReplica) { // /readyz goes on to check
		return err
	}
	p.Health.Started()
	if reason != "" {
		p.Logger.Info("postgres is there", "waited", time.Since(began).Round(time.Millisecond).String())
	}
	return nil
}

// serveAndWork runs serve at once, so that a waiting process can say what it waits
// for, and work as soon as Postgres is ready. Both end with ctx, and when one of
// them fails.
func (p *Process) serveAndWork(ctx context.Context, serve, work func(ctx context.Context) error) error {
	causes, gauges := p.causes(), new(telemetry.Gauges)
	p.Registry.MustRegister(gauges)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(running) })
	group.Go(func() error {
		if err := p.Await(running); err != nil {
			return err
		}
		group.Go(func() error { p.watch(running, causes, gauges); return nil })
		return work(running)
	})
	err := group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // stopped while it waited
		return nil
	}
	return err
}

// poolPatience is how long a process that ends waits for connections in use. The
// shutdown timeout is over by then, so nothing waits for their results.
const poolPatience = time.Second

func closePool(db *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() { defer close(closed); db.Close() }()
	select {
	case <-closed:
	case <-time.After(poolPatience):
	}
}

// DrawKey returns the keys that seal draw secrets; api and worker need them.
func (p *Process) DrawKey() (keyring.Keyring, error) {
	if p.Settings.Draw.SecretKey == "" {
		return keyring.Keyring{}, errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required by " + p.Name + "; make one with: openssl rand -hex 32")
	}
	return keyring.Parse(p.Settings.Draw.SecretKey, p.Settings.Draw.PreviousSecretKeys)
}
