package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"triprize/internal/approval"
	"triprize/internal/domain/payprovider"
	"triprize/internal/drawing"
	"triprize/internal/drawing/drand"
	"triprize/internal/entry/scheduler"
	"triprize/internal/entry/upkeep"
	"triprize/internal/entry/worker"
	"triprize/internal/inventory"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/stripe"
	"triprize/internal/platform/sweep"
	"triprize/internal/platform/telemetry"
)

// API serves HTTP until ctx ends. While it waits for Postgres it answers
// requests with 503. The main passes httpapi.New, so that no other process links
// the HTTP server.
func API(newServer func(config.Settings, *pgxpool.Pool, redis.UniversalClient, *lock.Locker, keyring.Keyring, payprovider.Provider, *slog.Logger, *prometheus.Registry, *telemetry.Health) (run func(context.Context) error, err error),
) func(context.Context, *Process) error {
	return func(ctx context.Context, p *Process) error {
		key, err := p.DrawKey()
		if err != nil {
			return err
		}
		if err := p.Settings.Payments.Stripe.CheckWebhooks(); err != nil {
			return err
		}
		if most := fitting(p.Settings.API.MaxConnections, openFiles()); most < p.Settings.API.MaxConnections {
			p.Logger.Warn("this process may open too few files: raise ulimit -n, LimitNOFILE", "max_connections", p.Settings.API.MaxConnections, "used", most)
			p.Settings.API.MaxConnections = most
		}
		if err := p.recordApprovals(); err != nil {
			return err
		}
		run, err := newServer(p.Settings, p.DB, p.Redis, p.Locks, key, p.provider(), p.Logger, p.Registry, p.Health)
		if err != nil {
			return err
		}
		serve := func(ctx context.Context) error {
			group, running := errgroup.WithContext(ctx)
			scraped, stop := context.WithCancel(context.WithoutCancel(ctx)) // also during the drain
			group.Go(func() error { defer stop(); return run(running) })
			group.Go(func() error { return p.metrics("api.metrics_listen", p.Settings.API.MetricsListen)(scraped) })
			return group.Wait()
		}
		defer p.watchEndpoints(p.DB).close()
		heartbeat := queue.NewHeartbeat(p.Redis, p.Settings.Redis.Namespace, queue.RoleAPI, queue.NewID(), p.Settings.Worker)
		heartbeat.Describe = p.described
		return p.serveAndWork(ctx, serve, func(ctx context.Context) error { heartbeat.Run(ctx, p.Logger); return nil })
	}
}

// recordApprovals has the settings of approvals recorded before the process serves. A gauge tells apis apart that differ.
func (p *Process) recordApprovals() error {
	a := p.Settings.Approvals
	above, err := a.Thresholds()
	if err != nil {
		return err
	}
	now := approval.SettingsOf(a.Required, above, a.By)
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_approvals_settings", Help: "A hash of the settings of approvals: apis that differ judge requests differently."})
	gauge.Set(float64(now.Hash()))
	p.Registry.MustRegister(gauge)
	host, _ := os.Hostname() // empty: unknown
	p.record = func(ctx context.Context) error { return approval.RecordSettings(ctx, p.DB, now, host) }
	return nil
}

const (
	filesBeside = 256 // connections to servers, and the like
	manyFiles   = 1 << 30
)

// fitting returns how many connections of so many leave files for the rest.
func fitting(connections int, files uint64) int {
	return min(connections, max(int(min(files, manyFiles))-filesBeside, 1))
}

// metrics returns what says in the log where the metrics are, and serves them until ctx ends.
func (p *Process) metrics(setting, listen string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if listen == "" {
			p.Logger.Info("metrics are not served", "empty_setting", setting)
		} else {
			p.Logger.Info("serving metrics", "address", listen, "path", "/metrics")
		}
		return telemetry.Serve(ctx, listen, p.Health, p.Registry)
	}
}

// Worker completes jobs until ctx ends.
func Worker(ctx context.Context, p *Process) error {
	key, err := p.DrawKey()
	if err != nil {
		return err
	}
	var draws drawing.DrawerOptions // without relays, draws of campaigns with a beacon wait for a worker that has them
	if p.Settings.Beacon.Enabled() {
		relays, err := drand.New(p.Settings.Beacon, p.Registry, p.Logger)
		if err != nil {
			return err
		}
		defer relays.Close()
		draws.Beacon = relays
	}
	w := worker.New(p.Settings, p.DB, p.Redis, key, upkeep.Personal(), draws, stripe.Takes, p.Logger, p.Registry)
	if err := w.TakeWebhooks(p.Settings.Webhooks, key, p.Registry); err != nil {
		return err
	}
	pools, closeCards, err := p.takeCards(ctx, w)
	if err != nil {
		return err
	}
	defer closeCards()
	w.Describe(p.described)
	defer p.watchEndpoints(append(pools, p.DB)...).close()
	return p.serveAndWork(ctx, p.metrics("worker.listen", p.Settings.Worker.Listen), func(ctx context.Context) error {
		p.Logger.Info("working", "shards", p.Settings.Worker.Shards)
		return w.Run(ctx, p.probePostgres)
	})
}

// Scheduler runs the sweeps at their intervals until ctx ends.
func Scheduler(ctx context.Context, p *Process) error {
	s, _ := p.scheduler()
	defer p.watchEndpoints(p.DB).close()
	return p.serveAndWork(ctx, p.metrics("scheduler.listen", p.Settings.Scheduler.Listen), func(ctx context.Context) error { s.Run(ctx, p.probePostgres); return nil })
}

func (p *Process) scheduler() (*scheduler.Scheduler, *upkeep.Sweeper) {
	o := upkeep.Options{Holds: inventory.NewHoldMetrics(p.Registry), Draws: drawing.NewTriggers(p.Registry, p.Logger), Provider: p.provider()}
	if o.Provider != nil {
		o.Events = cards.NewEvents(p.DB, o.Provider, p.Logger, p.Registry)
	}
	sweeper := upkeep.New(p.Settings, postgres.NewGate(p.DB, p.Registry).Retry(sweep.RowWait), p.Redis, p.Logger, o)
	leader := queue.NewHeartbeat(p.Redis, p.Settings.Redis.Namespace, queue.RoleScheduler, queue.NewID(), p.Settings.Worker)
	leader.Describe = p.described
	return scheduler.New(sweeper, p.Locks, leader, p.Settings.Scheduler, p.Logger, p.Registry), sweeper
}

// SweepOnce runs the named sweep, or all when only is empty, without a leader's
// lock, and prints {"sweeps": [report, …]}. A run that had more to do is followed by
// another, with a report of its own. It fails when a sweep has failed.
func SweepOnce(ctx context.Context, p *Process, only string, out io.Writer) error {
	s, sweeper := p.scheduler()
	if err := p.Await(ctx); err != nil {
		return err
	}
	var names []string
	var reports []sweep.Report
	var failed []error
	for _, one := range sweeper.Sweeps {
		names = append(names, one.Name)
		for more := only == "" || only == one.Name; more && ctx.Err() == nil; {
			report, err := s.RunOnce(ctx, one)
			reports, failed, more = append(reports, report), append(failed, err), report.More
		}
	}
	if len(reports) == 0 {
		return fmt.Errorf("there is no sweep %q; there are: %s", only, strings.Join(names, ", "))
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(map[string]any{"sweeps": reports}); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// openLocks sets Locks: on the servers of the quorum, if one is configured (quorum
// is then true), otherwise on the Redis of the process. Servers may be away at
// start and at any time after.
func (p *Process) openLocks() (quorum bool, closeAll func(), err error) {
	var opened []redis.UniversalClient
	closeAll = func() {
		for _, client := range opened {
			_ = client.Close()
		}
	}
	clients := []redis.UniversalClient{p.Redis}
	if urls := p.Settings.Locks.URLs(); p.Settings.Locks.Enabled && urls != nil {
		clients = nil
		for _, url := range urls {
			settings := p.Settings.Redis
			settings.URL = url
			client, err := redisx.Open(settings, "triprize-"+p.Name+"-locks", redisx.Once)
			if err != nil {
				closeAll()
				return false, nil, err
			}
			opened, clients = append(opened, client), append(clients, client)
		}
	}
	p.Locks = lock.New(clients, p.Settings.Redis.Namespace, p.Settings.Locks, p.Logger, p.Registry)
	return len(opened) > 0, closeAll, nil
}

// provider returns the payment provider, nil where cards are not accepted. Call it once in a process. It tells
// whether card payments move money: in /readyz, a gauge and, if they do not, the log.
func (p *Process) provider() payprovider.Provider {
	settings := p.Settings.Payments.Stripe
	if !settings.Enabled() {
		return nil
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_payments_livemode",
		Help: "1 when the key of the payment provider is live; 0 in test mode, where purchases by card cost nothing. Missing where no cards are taken."})
	p.Registry.MustRegister(gauge)
	p.Health.TakeCards(settings.Live())
	if settings.Live() {
		gauge.Set(1)
	} else {
		p.Logger.Warn("the payment provider is in test mode: purchases by card cost nothing", "setting", "payments.allow_test")
	}
	client := stripe.New(settings, p.Logger, p.Registry)
	p.keyRefused = client.KeyRefused
	return reconciliation.Mark(client, p.DB)
}

// takeCards lets a worker lead payments and refunds, with connections that are for them alone: while many of them
// wait for a slow provider, they take none from others, and others take none from them. Without a key of
// a provider it does nothing: payments that exist wait, and the sweep due-items says so.
func (p *Process) takeCards(ctx context.Context, w *worker.Worker) (pools []*pgxpool.Pool, closeAll func(), err error) {
	client := p.provider()
	if client == nil {
		return nil, func() {}, nil
	}
	settings := p.Settings.Postgres
	settings.MaxConnections = 4
	db, err := p.servers.Open(ctx, settings, "triprize-"+p.Name+"-payments", p.pools...)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	closeAll = func() { client.Close(); closePool(db) }
	if err := p.checkAccount(ctx, client); err != nil {
		closeAll()
		return nil, nil, err
	}
	w.TakeCards(client, db, p.Settings.Payments, p.Registry)
	return []*pgxpool.Pool{db}, closeAll, nil
}

// checkAccount refuses the key of another account than payments.stripe.account. While the
// provider does not answer, nobody can tell; a worker has other work, too, and starts.
func (p *Process) checkAccount(ctx context.Context, client payprovider.Provider) error {
	if p.Settings.Payments.Stripe.Account == "" {
		return nil
	}
	err := client.CheckAccount(ctx)
	if failed, ok := errors.AsType[*payprovider.Error](err); ok && failed.Kind == payprovider.KindMismatch {
		return fmt.Errorf("setting payments.stripe.account: %w", err)
	}
	if err != nil {
		p.Logger.Error("it is not known whose the key of payments.stripe is: Stripe has not said", "error", err)
	}
	return nil
}
