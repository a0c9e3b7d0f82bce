// Package delivery does the jobs of outbox messages in a worker.
//
//	task ─▶ its key ────────┬─▶ shards (batches of sales, of cancellations) ─┬─▶ announce ─▶ delete the message
//	                        ├─▶ redelivery (tried before) ───────────────────┤
//	                        └─▶ one by one (draws) ──────────────────────────┘
//
// Every kind has its own queue and slots, so a flood of one takes no slot of another. A handler holds its
// task until all its jobs are final. A campaign always belongs to the same shard, so one process does not
// compete with itself for the campaign's row, and the batches of the kinds alternate. Jobs whose rows stay
// locked for about a second go back to the outbox, without a task, until the sweep lost-jobs issues them
// (batches.go).
//
// A redelivered job may be one that kills workers. Redelivered jobs are tried together, then one by one, those
// with the fewest attempts first. No batch runs meanwhile, and each attempt is counted and committed before
// it begins, and not if a transient fault ends it. So such a job delays few others, and fails after
// [job.MaxDeliveries] (attempts.go). Draws keep running meanwhile, because one may take a minute. So a draw
// that kills its worker may cost another job one attempt; from its third delivery on no batch runs beside it.
//
// Nothing here must survive: jobs and messages are in Postgres.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
)

// Processor does the jobs of all kinds of a worker, and only it touches their attempts, messages and announcements.
type Processor struct {
	Options

	settings     config.Worker
	redisTimeout time.Duration // of each optional call to Redis
	metrics      *metrics
	shards       []*shard
	exclusive    sync.RWMutex // batches hold the read lock, attempts that are made alone the write lock

	announcements, deletions *batch.Coalescer[uuid.UUID, struct{}] // of jobs and messages, after a commit

	draining context.Context //nolint:containedctx // ends when handlers must stop waiting and release their tasks: no further call begins
	drain    context.CancelFunc
}

// Options are what a Processor uses.
type Options struct {
	DB         *pgxpool.Pool
	Redis      redis.UniversalClient
	Namespace  string
	Heartbeat  *queue.Heartbeat
	Dispatcher *queue.Dispatcher // closed by Close
	Logger     *slog.Logger
	Triggered  func(messages ...job.Message) // notes messages of draws; it must not block
	Due        func(items []lease.Item)      // dispatches items that a commit has made due; it must not block
}

// redisTimeout bounds each optional call to Redis.
const redisTimeout = time.Second

// New returns a Processor without kinds; add them before the first task. Close it.
func New(settings config.Worker, o Options, registry prometheus.Registerer) *Processor {
	p := &Processor{Options: o, settings: settings, redisTimeout: cmp.Or(settings.OptionalTimeout, redisTimeout), metrics: newMetrics(registry)}
	p.settings.MaxDeliveries = cmp.Or(settings.MaxDeliveries, job.MaxDeliveries)
	p.draining, p.drain = context.WithCancel(context.Background())
	p.announcements = p.newAnnouncements()
	p.deletions = p.newDeletions(cmp.Or(settings.OptionalTimeout, deleteTimeout))
	for range settings.Shards {
		p.shards = append(p.shards, &shard{processor: p, waits: lockWaits{pause: waitPause}, batches: make(map[job.Kind]*batch.Coalescer[*item, verdict])})
	}
	return p
}

// Draining is the context that ends when handlers must stop waiting and release their tasks.
func (p *Processor) Draining() context.Context { return p.draining }

// Drain ends it.
func (p *Processor) Drain() { p.drain() }

// Close ends the batches, and then what follows their commits. Call it when no handler runs.
func (p *Processor) Close() {
	var all sync.WaitGroup
	for _, l := range p.shards {
		all.Go(l.close)
	}
	all.Wait()
	p.Dispatcher.Close()
	p.announcements.Close()
	p.deletions.Close()
	p.drain()
}

var (
	errTaken    = errors.New("another worker has this task or job")
	errDraining = errors.New("this worker is shutting down")
)

// complete makes jobs final, or returns why it could not.
type complete func(ctx context.Context, jobs []job.Ref, redelivered bool) error

// handle returns the handler of a kind of task, which calls complete.
func (p *Processor) handle(of postgres.Transaction, complete complete) queue.Handler {
	return func(ctx context.Context, task queue.Task, redelivered bool) error {
		ctx = postgres.As(ctx, of)
		message, err := job.MessageOf(task)
		if err != nil { // the sweep lost-jobs issues its jobs again
			p.Logger.Error("a task that names no jobs was dropped", "kind", task.Kind, "task", task.ID, "error", err)
			return nil
		}
		if !p.acquire(ctx, message.ID) {
			return queue.Snooze(errTaken)
		}
		done := false // also after a panic
		defer func() { p.release(ctx, message.ID, !done) }()
		if len(message.Jobs) > 0 {
			redelivered := redelivered || message.Delivery > 1
			defer p.metrics.begun(message.Kind, len(message.Jobs), redelivered)()
			err := complete(ctx, message.Jobs, redelivered)
			if blocked, ok := errors.AsType[*blocked](err); ok { // the sweep lost-jobs issues its jobs once their campaigns are unlocked
				err := queue.Snooze(job.Snooze(ctx, p.DB, message.ID, blocked.byWallets))
				done = err == nil
				return err
			}
			if err != nil {
				return err
			}
		}
		done = true
		_ = p.deletions.Submit(message.ID) // full: the sweep lost-jobs deletes it
		return nil
	}
}

// acquire reports whether this worker may run a task or a redelivered job. Without Redis it may.
func (p *Processor) acquire(ctx context.Context, id uuid.UUID) bool {
	ctx, cancel := context.WithTimeout(ctx, p.redisTimeout)
	defer cancel()
	mine, err := p.Heartbeat.Acquire(ctx, id)
	if err != nil {
		p.Logger.Debug("a task is not locked in Redis; Postgres decides", "id", id, "error", err)
	}
	return mine || err != nil
}

func (p *Processor) release(ctx context.Context, id uuid.UUID, goesBack bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.redisTimeout)
	defer cancel()
	if err := p.Heartbeat.Release(ctx, id, goesBack); err != nil {
		p.Logger.Debug("the lock of a task was not released", "task", id, "error", err)
	}
}

// Items returns the consumer of leased items. Their tasks are not messages of the outbox: nothing is
// locked in Redis, no delivery is counted, and no task is retried. After any failure the item becomes due
// again, and the sweep due-items finds it.
func (p *Processor) Items(kind string, of postgres.Transaction, slots int, run func(ctx context.Context, item lease.Item) error) queue.Consumer {
	return queue.Consumer{Kind: kind, Concurrency: slots, Handle: func(ctx context.Context, task queue.Task, _ bool) error {
		ctx = postgres.As(ctx, of)
		item, err := lease.ItemOf(task)
		if err != nil {
			p.Logger.Error("a task that names no item was dropped", "kind", task.Kind, "error", err)
			return nil
		}
		if p.draining.Err() != nil {
			return nil //nolint:nilerr // the item stays due for other workers
		}
		if err := run(ctx, item); err != nil && p.draining.Err() == nil {
			p.metrics.faults.Inc()
			log := p.Logger.Error
			if IsTransient(err) {
				log = p.Logger.Warn
			}
			log("an item failed; it is due again when its lease expires", "kind", item.Kind, "item", item.ID, "error", err)
		}
		return nil
	}}
}

// Faulted counts an attempt that a transient fault has interrupted.
func (p *Processor) Faulted() { p.metrics.faults.Inc() }

// IsTransient reports whether an error is transient and not caused by the job.
func IsTransient(err error) bool { return postgres.IsTransient(err) || errors.Is(err, batch.ErrFull) }

// committed does the work after the commit of outcomes.
func (p *Processor) committed(ctx context.Context, kind job.Kind, outcomes []job.Outcome) {
	for _, o := range outcomes {
		p.Announce(o.ID)
	}
	p.metrics.completed(kind, outcomes)
	job.LogFinal(ctx, p.Logger, outcomes)
}

// Dispatch enqueues messages that a commit has made.
func (p *Processor) Dispatch(messages ...job.Message) {
	p.Triggered(messages...)
	p.Dispatcher.Dispatch(job.Tasks(messages)...)
}

// Announce announces that a job has changed.
func (p *Processor) Announce(id uuid.UUID) {
	_ = p.announcements.Submit(id) // full: waiters poll
}

const (
	announceBatch = 512
	deleteBatch   = 256
	maxPending    = 1 << 16
	deleteLinger  = 50 * time.Millisecond // no caller waits for a deletion, so each deletes many
	deleteTimeout = 5 * time.Second       // of a deletion; after a shutdown the sweep lost-jobs deletes the rest
)

func (p *Processor) newAnnouncements() *batch.Coalescer[uuid.UUID, struct{}] {
	announcements := job.NewAnnouncements(p.Redis, p.Namespace)
	return batch.NewQuiet(batch.Options{Size: announceBatch, InFlight: 1, Pending: maxPending, Timeout: p.redisTimeout}, func(ctx context.Context, ids []uuid.UUID) error {
		err := announcements.Publish(ctx, ids)
		if err != nil {
			p.Logger.Debug("changes of jobs not announced; waiters poll", "jobs", len(ids), "error", err)
		}
		return err
	})
}

// newDeletions deletes finished messages from the outbox.
func (p *Processor) newDeletions(timeout time.Duration) *batch.Coalescer[uuid.UUID, struct{}] {
	return batch.NewQuiet(batch.Options{Size: deleteBatch, Linger: deleteLinger, InFlight: 1, Pending: maxPending, Timeout: timeout}, func(ctx context.Context, ids []uuid.UUID) error {
		err := job.DeleteMessages(ctx, p.DB, ids)
		if err != nil {
			p.Logger.Warn("finished messages not deleted; the sweep lost-jobs will delete them", "messages", len(ids), "error", err)
		}
		return err
	})
}

// pause waits for d. It returns an error if ctx ends or the worker shuts down.
func (p *Processor) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return queue.Snooze(ctx.Err())
	case <-p.draining.Done():
		return queue.Snooze(errDraining)
	}
}

// outcomeSnoozed is the outcome, in traces, of an attempt at a job that was snoozed.
const outcomeSnoozed = "snoozed"

// endSpan ends the span of an attempt at one job.
func endSpan(span tracing.Span, o *job.Outcome, err error) {
	switch {
	case err == nil:
		span.Set(tracing.Outcome, o.Code())
	case errors.Is(err, queue.ErrSnoozed):
		span.Set(tracing.Outcome, outcomeSnoozed)
		err = nil
	}
	span.End(err)
}
