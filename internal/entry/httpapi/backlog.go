package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
)

// backlog estimates how long accepted jobs of each kind have to wait: as long as the
// oldest task in the queue of the kind has waited. It sets Retry-After, and refuses new
// jobs of a kind when their wait is longer than accept.Longest_wait.
//
// Payments have a queue of their own, which only purchases by card have to wait in, and a
// limit of their own: nine tenths of the time of a reservation, which would expire unpaid
// if it waited longer.
// Their wait is also read in Postgres: tasks that Redis has lost wait as well.
type backlog struct {
	finder   *queue.Finder
	payments func(ctx context.Context) (time.Duration, error) // nil: there are no cards
	longest  map[job.Kind]time.Duration
	waiting  map[job.Kind]*atomic.Int64 // nanoseconds; unknown while nobody can say
}

const (
	backlogInterval = time.Second // how often the queues are read
	minRetryAfter   = 1           // seconds
	maxRetryAfter   = 60
	unknown         = -1 // a wait that is not known
)

func newBacklog(finder *queue.Finder, settings config.Settings, payments func(context.Context) (time.Duration, error), registry prometheus.Registerer) *backlog {
	b := &backlog{finder: finder, longest: make(map[job.Kind]time.Duration), waiting: make(map[job.Kind]*atomic.Int64)}
	for _, kind := range job.QueueKinds {
		b.longest[kind] = cmp.Or(settings.Accept.LongestWait, 2*time.Minute) // beyond it 503
	}
	if settings.Payments.Stripe.Enabled() {
		b.payments, b.longest[job.KindPayment] = payments, settings.Payments.Reservation/10*9
	}
	for kind := range b.longest {
		b.waiting[kind] = &atomic.Int64{}
		b.waiting[kind].Store(unknown)
	}
	registry.MustRegister(b)
	return b
}

// run reads the queues at every interval until ctx ends.
func (b *backlog) run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(backlogInterval)
	defer ticker.Stop()
	for {
		b.read(ctx, logger)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (b *backlog) read(ctx context.Context, logger *slog.Logger) {
	for kind, waiting := range b.waiting {
		if ctx.Err() != nil { // each read of a Redis that does not answer takes seconds
			return
		}
		wait, err := b.finder.Latency(string(kind))
		if err != nil {
			logger.Debug("a queue cannot be read", "kind", kind, "error", err)
			wait = unknown
		}
		if kind == job.KindPayment {
			unpaid, cancel := context.WithTimeout(ctx, backlogInterval)
			begun, err := b.payments(unpaid) // how long payments have waited that nobody has begun
			if cancel(); err != nil {
				logger.Debug("the wait of payments cannot be read", "error", err)
				begun = unknown
			}
			wait = max(wait, begun)
		}
		waiting.Store(int64(wait))
	}
}

// wait returns how long jobs of a kind have to wait, and 0 for kinds without a queue and while it
// is not known.
func (b *backlog) wait(kind job.Kind) time.Duration {
	if waiting, ok := b.waiting[kind]; ok {
		return max(time.Duration(waiting.Load()), 0)
	}
	return 0
}

var queueWait = prometheus.NewDesc("triprize_queue_wait_seconds",
	"How long the oldest task of a kind has been waiting; missing while Redis cannot say.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (b *backlog) Describe(out chan<- *prometheus.Desc) { out <- queueWait }

// Collect implements prometheus.Collector.
func (b *backlog) Collect(out chan<- prometheus.Metric) {
	for kind, waiting := range b.waiting {
		if wait := time.Duration(waiting.Load()); wait != unknown {
			out <- prometheus.MustNewConstMetric(queueWait, prometheus.GaugeValue, wait.Seconds(), string(kind))
		}
	}
}

// overloaded refuses a job because of the backlog of its kind.
type overloaded struct {
	error

	kind job.Kind
}

func (o *overloaded) Unwrap() error { return o.error }

// admit returns an overloaded error when a job would have to wait too long in one of the
// queues of these kinds.
func (b *backlog) admit(kinds ...job.Kind) error {
	for _, kind := range kinds {
		if wait := b.wait(kind); wait > b.longest[kind] {
			return &overloaded{fault.New(fault.Overloaded, "jobs of this kind (%s) have a backlog of %s; retry later with the same Idempotency-Key", kind, wait.Round(time.Second)), kind}
		}
	}
	return nil
}

// retryAfter returns after how many seconds a client should ask for a job again.
func (b *backlog) retryAfter(kind job.Kind) int {
	seconds := int(math.Ceil(b.wait(kind).Seconds()))
	return min(max(seconds, minRetryAfter), maxRetryAfter)
}

// retryAfterError returns after how many seconds a request that was not served may come
// again: its kind's wait, if that was why.
func (b *backlog) retryAfterError(err error) int {
	if o, ok := errors.AsType[*overloaded](err); ok {
		return b.retryAfter(o.kind)
	}
	return minRetryAfter
}
