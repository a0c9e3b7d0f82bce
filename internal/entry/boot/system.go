package boot

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/webhook"
)

// The causes that degrade the whole system; docs/operations.md says what to do about each.
const (
	causeDrawKeyWrong  = "draw_key_wrong" // of this process
	causeDrawFailing   = "draw_failing"
	causeNoScheduler   = "no_scheduler"
	causeNoWorker      = "no_worker"
	causeSalesStuck    = "sales_stuck"
	causeWorkerFrozen  = "worker_frozen"
	causeWritesFailing = "writes_failing" // of this process
)

// apiName is the name of the process that accepts jobs.
const apiName = "api"

const (
	// lookEvery is how often a process looks at the whole system. The first look comes after
	// it, so that processes that start together find each other.
	lookEvery = 5 * time.Second
	// lookTimeout bounds what one look asks of Postgres, and of Redis. It is shorter than the probe of Postgres
	// for /readyz, which waits for the same connection.
	lookTimeout = time.Second
	// mostNamed is how many campaigns the log names.
	mostNamed = 5
	// stuckAfter is how long a purchase may wait for workers before sales stand still.
	stuckAfter = 15 * time.Second
)

// look is what a look has found. What it could not find out is missing.
type look struct {
	causes []telemetry.Cause
	gauges []prometheus.Metric
}

// causes returns what the process looks for: a wrong draw key only if it has one, and writes
// that fail only as an api.
func (p *Process) causes() *telemetry.Causes {
	names := []string{causeDrawFailing, causeNoScheduler, causeNoWorker, causeSalesStuck, causeWorkerFrozen}
	if p.Settings.Draw.SecretKey != "" {
		names = append([]string{causeDrawKeyWrong}, names...)
	}
	if p.Name == apiName {
		names = append(names, causeWritesFailing)
	}
	causes := telemetry.NewCauses(p.Logger, p.Registry, names...)
	p.Health.Degrade(causes)
	return causes
}

// watch looks at the whole system until ctx ends. Every lookEvery it costs three commands of
// Redis, and some small queries on the connection of /readyz.
func (p *Process) watch(ctx context.Context, causes *telemetry.Causes, gauges *telemetry.Gauges) {
	keys, noKey := p.DrawKey()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		redis, postgres := p.lookAtRedis(ctx), p.lookAtPostgres(ctx)
		found := append(redis.causes, postgres.causes...)
		if noKey == nil {
			found = append(found, p.lookAtKeys(ctx, keys)...)
		}
		if p.Name == apiName {
			found = append(found, telemetry.Cause{Name: causeWritesFailing, Holds: p.Health.WritesFail()})
		}
		if ctx.Err() == nil {
			causes.Set(found...)
			gauges.Set(append(redis.gauges, postgres.gauges...)...)
		}
	}
}

// lookAtKeys returns nothing while Postgres does not answer.
func (p *Process) lookAtKeys(ctx context.Context, keys keyring.Keyring) []telemetry.Cause {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := drawing.CheckKeys(ctx, p.apart, keys)
	wrong := errors.Is(err, keyring.ErrOpen)
	if err != nil && !wrong {
		return nil
	}
	return []telemetry.Cause{{Name: causeDrawKeyWrong, Holds: wrong}}
}

// The gauges of the whole system. A gauge of which the last look could not find out the value is
// missing.
var (
	jobsQueued    = systemDesc("jobs_queued", "Jobs in the outbox, of a kind, in its 400 oldest messages. A payment by card leaves it when it begins. Jobs of a message that is half done count until all of it is done.", "kind")
	jobsQueuedAge = systemDesc("jobs_queued_age_seconds",
		"For how long the oldest job of a kind has waited for workers; 0 when none waits. A card payment that waits for its buyer or its provider does not count.", "kind")
	campaignsDrawing    = systemDesc("campaigns_drawing", "Campaigns whose sale is over and that are not drawn.")
	campaignsDrawingAge = systemDesc("campaigns_drawing_age_seconds", "For how long the oldest campaign is drawing, whatever the reason; 0 when none is.")
	voidsAnnounced      = systemDesc("draw_voids_announced", "Campaigns that are drawing and whose void is announced: see docs/draw.md.")
	locksHeld           = systemDesc("execution_locks_held", "Draws that a worker has claimed.")
	lockAge             = systemDesc("execution_lock_age_seconds", "For how long a claim of a draw has not been renewed, of the oldest; 0 when there is none. A worker at work renews it.")
	workersAlive        = systemDesc("workers_alive", "Workers that send heartbeats.")
	workersSilent       = systemDesc("workers_silent", "Workers that stopped sending heartbeats in the last ten minutes without deregistering.")
	leadersAlive        = systemDesc("schedulers_alive", "Schedulers that lead and send heartbeats: one.")
	redisKeys           = systemDesc("redis_keys", "Keys in the database of Redis. Most are answers to repeated requests.")
	tasksUnleased       = systemDesc("tasks_without_lease", "Tasks that the queue of a kind says to be in hand, and that no worker holds a lease of: theirs died. They come again.", "kind")
)

// systemGauges are all of them.
func systemGauges() *telemetry.Gauges {
	return telemetry.NewGauges(jobsQueued, jobsQueuedAge, campaignsDrawing, campaignsDrawingAge, voidsAnnounced, locksHeld, lockAge,
		workersAlive, workersSilent, leadersAlive, redisKeys, tasksUnleased)
}

func systemDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("triprize_"+name, help+" Every process reports the same value.", labels, nil)
}

func (l *look) tell(desc *prometheus.Desc, value float64, labels ...string) {
	l.gauges = append(l.gauges, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
}

// taskKinds are the kinds of tasks, each with a queue.
var taskKinds = []string{string(job.KindDraw), string(job.KindCancellation), string(job.KindPurchase), string(job.KindCampaignCancellation),
	string(job.KindPayment), string(job.KindRefund), string(job.KindEvent), webhook.Kind, webhook.KindSlow}

// lookAtRedis returns nothing while Redis does not answer, or takes no writes: then no process can
// announce itself, and all of them would seem to be away.
func (p *Process) lookAtRedis(ctx context.Context) (l look) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if p.checkRedis(ctx) != nil {
		return look{}
	}
	present, err := queue.ReadProcesses(ctx, p.Redis, p.Settings.Redis.Namespace)
	if err != nil {
		return look{}
	}
	unleased, keys, err := queue.CountUnleased(ctx, p.Redis, p.Settings.Redis.Namespace, taskKinds)
	if err != nil {
		return look{}
	}
	workers, schedulers := present[queue.RoleWorker], present[queue.RoleScheduler]
	l.causes = []telemetry.Cause{
		{Name: causeNoScheduler, Holds: len(schedulers.Alive) == 0},
		{Name: causeNoWorker, Holds: len(workers.Alive) == 0},
		{Name: causeWorkerFrozen, Holds: len(workers.Stale) > 0, Details: []any{"workers", workers.Stale}},
	}
	l.tell(workersAlive, float64(len(workers.Alive)))
	l.tell(workersSilent, float64(len(workers.Stale)))
	l.tell(leadersAlive, float64(len(schedulers.Alive)))
	l.tell(redisKeys, float64(keys))
	for i, kind := range taskKinds {
		l.tell(tasksUnleased, float64(unleased[i]), kind)
	}
	return l
}

// queuedKinds are the kinds of jobs whose backlog is told.
var queuedKinds = []job.Kind{job.KindDraw, job.KindCancellation, job.KindPurchase, job.KindCampaignCancellation}

// lookAtPostgres returns nothing while Postgres does not answer.
func (p *Process) lookAtPostgres(ctx context.Context) (l look) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	backlog, err := job.ReadBacklog(ctx, p.apart, queuedKinds...)
	if err != nil {
		return look{}
	}
	draws, err := drawing.CountUnderWay(ctx, p.apart)
	if err != nil {
		return look{}
	}
	failing, err := drawing.Failing(ctx, p.apart, mostNamed) // again and again
	if err != nil {
		return look{}
	}
	purchases := backlog[job.KindPurchase]
	stuck := telemetry.Cause{Name: causeSalesStuck, Holds: purchases.Oldest > stuckAfter,
		Details: []any{"oldest_job", purchases.Job, "campaign", purchases.Campaign, "waits_seconds", int(purchases.Oldest.Seconds()), "jobs", purchases.Jobs}}
	l.causes = []telemetry.Cause{stuck, {Name: causeDrawFailing, Holds: len(failing) > 0, Details: []any{"campaigns", failing}}}
	for _, kind := range queuedKinds {
		l.tell(jobsQueued, float64(backlog[kind].Jobs), string(kind))
		l.tell(jobsQueuedAge, backlog[kind].Oldest.Seconds(), string(kind))
	}
	l.tell(campaignsDrawing, float64(draws.Campaigns))
	l.tell(campaignsDrawingAge, draws.Oldest.Seconds())
	l.tell(voidsAnnounced, float64(draws.Voids))
	l.tell(locksHeld, float64(draws.Claims))
	l.tell(lockAge, draws.OldestClaim.Seconds())
	return l
}
