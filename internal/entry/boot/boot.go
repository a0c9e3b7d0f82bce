// Package boot is what every process of the fleet does first: read flags and
// settings, set up logs and metrics, open Postgres and Redis, and refuse to run
// on a schema that is too old. The mains below cmd only say what comes after.
package boot

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/schema"
	"triprize/internal/platform/seal"
	"triprize/internal/platform/telemetry"
)

// Process is what a main has at hand.
type Process struct {
	Name     string
	Settings config.Settings
	Logger   *slog.Logger
	Registry *prometheus.Registry
	DB       *pgxpool.Pool
	Redis    *redis.Client
	Locks    *lock.Locker
	Checks   []telemetry.Check // for /readyz
}

// gcPercent lets the heap grow to four times what is in use before it is swept.
// That is some 20 MB here: with Go's default of 100 a sixth of the processor time
// goes into sweeping it over and over, and into stacks that each sweep shrinks.
const gcPercent = 300

// Main runs a process and exits with its status: 0 when run returns nil, 1 when
// it fails, 2 when flags or settings are wrong. The context of run ends with
// SIGINT or SIGTERM; a second signal ends the process at once.
func Main(name string, flags *flag.FlagSet, run func(ctx context.Context, p *Process) error) {
	file := flags.String("config", "", "settings file (default: $"+config.FileVariable+", or none)")
	_ = flags.Parse(os.Args[1:]) // exits by itself
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q\n", name, flags.Arg(0))
		os.Exit(2)
	}
	settings, err := config.Load(*file)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s does not start:\n%v\n", name, err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from now on a signal has its ordinary effect
	if err := start(ctx, name, settings, os.Stderr, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, name string, settings config.Settings, logs io.Writer, run func(context.Context, *Process) error) error {
	p := &Process{Name: name, Settings: settings, Logger: telemetry.NewLogger(settings.Log, name, logs), Registry: telemetry.NewRegistry()}
	redisx.LogTo(p.Logger)
	var err error
	if p.DB, err = postgres.Open(ctx, settings.Postgres, "triprize-"+name); err != nil {
		return err
	}
	defer closePool(p.DB)
	if p.Redis, err = redisx.Open(settings.Redis, "triprize-"+name); err != nil {
		return fmt.Errorf("setting redis.url (TRIPRIZE_REDIS_URL): %w", err)
	}
	defer func() { _ = p.Redis.Close() }()
	telemetry.RegisterPool(p.Registry, p.DB)
	p.Checks = []telemetry.Check{
		{Name: "postgres", Required: true, Probe: func(ctx context.Context) error { return schema.Check(ctx, p.DB) }},
		{Name: "redis", Probe: func(ctx context.Context) error { return p.Redis.Ping(ctx).Err() }},
	}
	closeLocks, err := p.openLocks()
	if err != nil {
		return err
	}
	defer closeLocks()
	if err := schema.Check(ctx, p.DB); err != nil {
		return err
	}
	err = run(ctx, p)
	p.Logger.Info("stopped")
	return err
}

// poolPatience is how long the end of a process waits for connections that are
// still in use: after the shutdown timeout, nobody waits for what they do.
const poolPatience = time.Second

func closePool(db *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() { defer close(closed); db.Close() }()
	select {
	case <-closed:
	case <-time.After(poolPatience):
	}
}

// DrawKey returns the key that seals draw secrets, which api and worker need.
func (p *Process) DrawKey() (seal.Key, error) {
	if p.Settings.Draw.SecretKey == "" {
		return seal.Key{}, errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required by " + p.Name + "; make one with: openssl rand -hex 32")
	}
	return seal.ParseKey(p.Settings.Draw.SecretKey)
}
