package boot

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/buildinfo"
	"triprize/internal/drawing"
	"triprize/internal/entry/checks"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/telemetry"
)

// The causes that degrade the whole system; docs/operations.md says what to do about each.
const (
	causeDrawKeyWrong  = "draw_key_wrong" // of this process
	causeDrawFailing   = "draw_failing"
	causeNoScheduler   = "no_scheduler"
	causeNoWorker      = "no_worker"
	causeAsynchronous  = "replication_asynchronous"
	causeRedisStandby  = "redis_standby_away"
	causeSalesStuck    = "sales_stuck"
	causeStandbyAway   = "standby_away"
	causeWorkerFrozen  = "worker_frozen"
	causeOverloaded    = "overloaded"     // of this process
	causeProviderKey   = "provider_key"   // of this process
	causeWritesFailing = "writes_failing" // of this process
)

// The names of the processes that accept jobs, and complete them.
const apiName, workerName = "api", "worker"

// readEvery is how often a process reads the state of the whole system. The first time is after it, so
// that processes that start together find each other. Tests wait for it.
var readEvery = map[bool]time.Duration{false: 5 * time.Second, true: time.Second}[failpoint.Enabled]

const (
	// readTimeout bounds the reads of one snapshot in Postgres, and those in Redis. It is shorter than the probe of Postgres
	// for /readyz, which waits for the same connection.
	readTimeout = time.Second
	// maxNamed is how many campaigns the log names.
	maxNamed = 5
	// stuckAfter is how long a purchase may wait for workers before sales stand still.
	stuckAfter = 15 * time.Second
)

// A snapshot is what a process has read about the whole system. What it could not read is missing.
type snapshot struct {
	checks.Reading
	causes      []telemetry.Cause
	standbyAway bool // required or not
}

// causes returns those that the process checks: a wrong draw key only if it has one, writes
// that fail only as an api, and standbys only if one is required, or if Redis fails over.
func (p *Process) causes() *telemetry.Causes {
	names := []string{causeDrawFailing, causeNoScheduler, causeNoWorker, causeSalesStuck, causeWorkerFrozen}
	if p.Settings.Draw.SecretKey != "" {
		names = append([]string{causeDrawKeyWrong}, names...)
	}
	if p.Name == apiName {
		names = append(names, causeOverloaded, causeWritesFailing)
	}
	if p.keyRefused != nil {
		names = append(names, causeProviderKey)
	}
	if p.Settings.Postgres.RequireSyncStandby {
		names = append(names, causeAsynchronous, causeStandbyAway)
	}
	if p.Settings.Redis.FailsOver() {
		names = append(names, causeRedisStandby)
	}
	causes := telemetry.NewCauses(p.Logger, p.Registry, names...)
	p.Health.Degrade(causes)
	return causes
}

// watch reads the state of the whole system until ctx ends. Every readEvery it costs some round trips
// to Redis and some small queries on the connection of /readyz; a worker's own gauges come on top.
func (p *Process) watch(ctx context.Context, causes *telemetry.Causes, gauges *telemetry.Gauges) {
	keys, noKey := p.DrawKey()
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		p.Health.Ready() //nolint:contextcheck // nobody else may ask, and then nobody compares the primary with the newest
		inRedis, inPostgres := p.readRedis(ctx), p.readPostgres(ctx)
		found := slices.Concat(inRedis.causes, inPostgres.causes, p.readRedisStandbys(ctx))
		if noKey == nil {
			found = append(found, p.checkKeys(ctx, keys)...)
		}
		if p.Name == apiName {
			found = append(found, telemetry.Cause{Name: causeOverloaded, Holds: p.Health.Refuses()}, telemetry.Cause{Name: causeWritesFailing, Holds: p.Health.WritesFail()})
		}
		if p.keyRefused != nil {
			found = append(found, telemetry.Cause{Name: causeProviderKey, Holds: p.keyRefused()})
		}
		if ctx.Err() == nil {
			causes.Set(found...)
			gauges.Set(slices.Concat(inRedis.Metrics(), inPostgres.Metrics(), p.readOwn(ctx).Metrics())...)
		}
		said := p.describe() //nolint:contextcheck // it reads what is known
		p.said.Store(&said)
		if inPostgres.standbyAway { // or has been promoted, while this primary, fenced by nobody, goes on
			p.servers.AskOthers(ctx, p.apart)
		}
	}
}

// described returns what describe said last. A heartbeat that waited for a check would renew no task meanwhile.
func (p *Process) described() queue.Description {
	if said := p.said.Load(); said != nil {
		return *said
	}
	return queue.Description{Version: buildinfo.Version()}
}

// describe says what only this process knows of itself: its failing checks and causes.
func (p *Process) describe() queue.Description {
	ready, said := p.Health.Ready(), queue.Description{Version: buildinfo.Version()}
	for name, is := range ready.Checks {
		if is != telemetry.StatusOK {
			said.Faults = append(said.Faults, name)
		}
	}
	for _, name := range ready.Causes {
		if slices.Contains([]string{causeDrawKeyWrong, causeOverloaded, causeProviderKey, causeWritesFailing}, name) {
			said.Faults = append(said.Faults, name)
		}
	}
	if ready.Livemode != nil && !*ready.Livemode {
		said.Faults = append(said.Faults, "test_mode")
	}
	return said
}

// readOwn reads the gauges that only workers have. A slow group delays the others, and does not end them.
func (p *Process) readOwn(ctx context.Context) *checks.Reading {
	own := new(checks.Reading)
	if p.Name != workerName {
		return own
	}
	reads := []func(context.Context, postgres.DB) error{own.ReadMoney, own.ReadLeases, own.ReadAudit, own.ReadWebhooks}
	if p.Settings.Payments.Stripe.Enabled() {
		reads = append(reads, own.ReadCards)
	}
	var errs []error
	for _, read := range reads {
		bounded, cancel := context.WithTimeout(ctx, 2*readTimeout)
		errs = append(errs, read(bounded, p.DB))
		cancel()
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		p.Logger.Warn("gauges cannot be read and are missing", "error", err)
	}
	return own
}

// checkKeys returns nothing while Postgres does not answer.
func (p *Process) checkKeys(ctx context.Context, keys keyring.Keyring) []telemetry.Cause {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := drawing.CheckKeys(ctx, p.apart, keys)
	wrong := errors.Is(err, keyring.ErrOpen)
	if err != nil && !wrong {
		return nil
	}
	return []telemetry.Cause{{Name: causeDrawKeyWrong, Holds: wrong}}
}

// readRedisStandbys returns nothing while Redis does not answer. A user that may not ask hears so once.
func (p *Process) readRedisStandbys(ctx context.Context) []telemetry.Cause {
	if !p.Settings.Redis.FailsOver() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lacks, err := redisx.Lacks(ctx, p.Settings.Redis, p.Redis)
	if redis.IsPermissionError(err) {
		p.muteRedis.Do(func() { p.Logger.Warn("whether Redis can fail over is not checked", "error", err) })
	} else if err != nil {
		return nil
	}
	return []telemetry.Cause{{Name: causeRedisStandby, Holds: lacks != "", Details: []any{"lacks", lacks}}}
}

// readRedis returns nothing while Redis does not answer, or takes no writes: then no process can
// announce itself, and all of them would seem to be away.
func (p *Process) readRedis(ctx context.Context) (s snapshot) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if p.checkRedis(ctx) != nil {
		return snapshot{}
	}
	if s.ReadFleet(ctx, p.Redis, p.Settings.Redis.Namespace) != nil {
		return snapshot{}
	}
	unleased, err := queue.CountUnleased(ctx, p.Redis, p.Settings.Redis.Namespace, job.TaskKinds)
	if err != nil {
		return snapshot{}
	}
	var keys atomic.Int64
	err = redisx.EachPrimary(ctx, p.Redis, func(ctx context.Context, one redis.UniversalClient) error {
		n, err := one.DBSize(ctx).Result()
		keys.Add(n)
		return err
	})
	if err != nil {
		return snapshot{}
	}
	silent := s.Fleet.Named(queue.RoleWorker, queue.Silent)
	s.causes = []telemetry.Cause{
		{Name: causeNoScheduler, Holds: len(s.Fleet.Named(queue.RoleScheduler, queue.Alive)) == 0},
		{Name: causeNoWorker, Holds: len(s.Fleet.Named(queue.RoleWorker, queue.Alive)) == 0},
		{Name: causeWorkerFrozen, Holds: len(silent) > 0, Details: []any{"workers", silent}},
	}
	s.Add("redis_keys", "Keys in the database of Redis.", float64(keys.Load()))
	for i, kind := range job.TaskKinds {
		s.Add("tasks_without_lease", "Tasks that the queue of a kind says to be in hand, and that no worker holds a lease of: theirs died. They come again.",
			float64(unleased[i]), "kind", string(kind))
	}
	s.ReadMemory(ctx, p.Redis)
	return s
}

// readPostgres returns nothing while Postgres does not answer.
func (p *Process) readPostgres(ctx context.Context) (s snapshot) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if cmp.Or(s.ReadBacklog(ctx, p.apart), s.ReadDraws(ctx, p.apart)) != nil {
		return snapshot{}
	}
	failing, err := drawing.Failing(ctx, p.apart, maxNamed) // again and again
	if err != nil {
		return snapshot{}
	}
	purchases := s.Backlog[job.KindPurchase]
	stuck := telemetry.Cause{Name: causeSalesStuck, Holds: purchases.Oldest > stuckAfter,
		Details: []any{"oldest_job", purchases.Job, "campaign", purchases.Campaign, "waits_seconds", int(purchases.Oldest.Seconds()), "jobs", purchases.Jobs}}
	s.causes = []telemetry.Cause{stuck, {Name: causeDrawFailing, Holds: len(failing) > 0, Details: []any{"campaigns", failing}}}
	replication, err := p.readReplication(ctx)
	if err != nil {
		return snapshot{}
	}
	if p.Settings.Postgres.RequireSyncStandby {
		s.causes = append(s.causes, replication...)
	}
	s.standbyAway = replication[1].Holds
	return s
}

// readReplication reads whether commits are to wait for a synchronous standby, and whether it is away: they wait in vain
// (every role sees its own sessions), or none is connected and less than ten seconds behind, which only roles with
// pg_read_all_stats see.
func (p *Process) readReplication(ctx context.Context) ([]telemetry.Cause, error) {
	var standbys, commit string
	var away bool
	err := p.apart.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit')`).Scan(&standbys, &commit)
	if err == nil && standbys != "" { // without one nothing waits
		err = p.apart.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND clock_timestamp() - state_change > '3 seconds')
			       OR pg_has_role('pg_read_all_stats', 'USAGE') AND NOT EXISTS (SELECT FROM pg_stat_replication
			           WHERE sync_state IN ('sync', 'quorum') AND coalesce(flush_lag, '0') < '10 seconds')`).Scan(&away)
	}
	return []telemetry.Cause{
		{Name: causeAsynchronous, Holds: standbys == "" || commit != "on" && commit != "remote_apply",
			Details: []any{"synchronous_standby_names", standbys, "synchronous_commit", commit}},
		{Name: causeStandbyAway, Holds: away, Details: []any{"synchronous_standby_names", standbys}},
	}, err
}
