package job

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/queue"
)

// QueueWaits estimates how long accepted jobs of each kind have to wait: as long as the
// oldest task in the queue of the kind has waited. It sets Retry-After, and refuses new
// jobs of a kind when their wait is longer than its bound.
//
// Payments have a queue of their own, which only purchases by card have to wait in, and a
// limit of their own: nine tenths of the time of a reservation, which would expire unpaid
// if it waited longer.
// Their wait is also read in Postgres: tasks that Redis has lost wait as well.
type QueueWaits struct {
	finder   *queue.Finder
	payments func(ctx context.Context) (time.Duration, error) // nil: there are no cards
	longest  map[Kind]time.Duration
	waiting  map[Kind]*atomic.Int64 // nanoseconds; unknown while nobody can say
}

// The bounds of Retry-After, in seconds.
const (
	MinRetryAfter = 1
	MaxRetryAfter = 60
)

const (
	readEvery = time.Second // how often the queues are read
	unknown   = -1          // a wait that is not known
)

// NewQueueWaits returns a QueueWaits with the bounds of kinds; payments reads how long payments wait, nil where there are no
// cards. Run reads the queues.
func NewQueueWaits(finder *queue.Finder, longest map[Kind]time.Duration, payments func(context.Context) (time.Duration, error), registry prometheus.Registerer) *QueueWaits {
	w := &QueueWaits{finder: finder, payments: payments, longest: longest, waiting: make(map[Kind]*atomic.Int64)}
	for kind := range w.longest {
		w.waiting[kind] = &atomic.Int64{}
		w.waiting[kind].Store(unknown)
	}
	registry.MustRegister(w)
	return w
}

// Run reads the queues until ctx ends.
func (w *QueueWaits) Run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		w.read(ctx, logger)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *QueueWaits) read(ctx context.Context, logger *slog.Logger) {
	for kind, waiting := range w.waiting {
		if ctx.Err() != nil { // each read of a Redis that does not answer takes seconds
			return
		}
		wait, err := w.finder.Latency(ctx, string(kind))
		if err != nil {
			logger.Debug("a queue cannot be read", "kind", kind, "error", err)
			wait = unknown
		}
		if kind == KindPayment {
			unpaid, cancel := context.WithTimeout(ctx, readEvery)
			begun, err := w.payments(unpaid) // how long payments have waited that nobody has begun
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
func (w *QueueWaits) wait(kind Kind) time.Duration {
	if waiting, ok := w.waiting[kind]; ok {
		return max(time.Duration(waiting.Load()), 0)
	}
	return 0
}

var queueWait = prometheus.NewDesc("triprize_queue_wait_seconds",
	"How long the oldest task of a kind has been waiting; missing while Redis cannot say.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (w *QueueWaits) Describe(out chan<- *prometheus.Desc) { out <- queueWait }

// Collect implements prometheus.Collector.
func (w *QueueWaits) Collect(out chan<- prometheus.Metric) {
	for kind, waiting := range w.waiting {
		if wait := time.Duration(waiting.Load()); wait != unknown {
			out <- prometheus.MustNewConstMetric(queueWait, prometheus.GaugeValue, wait.Seconds(), string(kind))
		}
	}
}

// overloaded refuses a job because of the backlog of its kind.
type overloaded struct {
	error

	kind Kind
}

func (o *overloaded) Unwrap() error { return o.error }

// Admit returns an overloaded error when a job would have to wait too long in one of the
// queues of these kinds.
func (w *QueueWaits) Admit(kinds ...Kind) error {
	for _, kind := range kinds {
		if wait := w.wait(kind); wait > w.longest[kind] {
			return &overloaded{fault.New(fault.Overloaded, "jobs of this kind (%s) have a backlog of %s; retry later with the same Idempotency-Key", kind, wait.Round(time.Second)), kind}
		}
	}
	return nil
}

// RetryAfter returns after how many seconds a client should ask for a job of a kind again.
func (w *QueueWaits) RetryAfter(kind Kind) int {
	seconds := int(math.Ceil(w.wait(kind).Seconds()))
	return min(max(seconds, MinRetryAfter), MaxRetryAfter)
}

// RetryAfterError returns after how many seconds a request that was not served may come
// again: its kind's wait, if that was why.
func (w *QueueWaits) RetryAfterError(err error) int {
	if o, ok := errors.AsType[*overloaded](err); ok {
		return w.RetryAfter(o.kind)
	}
	return MinRetryAfter
}
