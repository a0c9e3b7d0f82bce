package httpapi

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

// backlog knows how long accepted jobs have to wait at present: as long as the
// oldest task in the queue has waited. It tells clients when to ask again, and
// refuses new jobs when the wait is longer than anybody should be promised.
type backlog struct {
	finder  *queue.Finder
	longest time.Duration
	waiting atomic.Int64 // nanoseconds; 0 while nobody can say
}

// backlogInterval is how often the queues are looked at.
const backlogInterval = time.Second

// The bounds of Retry-After, in seconds.
const (
	minRetryAfter = 1
	maxRetryAfter = 60
)

func newBacklog(finder *queue.Finder, longest time.Duration, registry prometheus.Registerer) *backlog {
	b := &backlog{finder: finder, longest: longest}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_queue_wait_seconds",
		Help: "How long the oldest task has been waiting; 0 while Redis cannot say."},
		func() float64 { return time.Duration(b.waiting.Load()).Seconds() }))
	return b
}

// run looks at the queues until ctx ends.
func (b *backlog) run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(backlogInterval)
	defer ticker.Stop()
	for {
		var longest time.Duration
		for _, kind := range job.QueueKinds { // one by one: a queue that was never used is an error
			waiting, err := b.finder.Wait(string(kind))
			if err != nil {
				logger.Debug("a queue cannot be looked at", "kind", kind, "error", err)
			}
			longest = max(longest, waiting)
		}
		b.waiting.Store(int64(longest))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// admit returns an overloaded Error when a job accepted now would have to wait too long.
func (b *backlog) admit() error {
	if waiting := time.Duration(b.waiting.Load()); waiting > b.longest {
		return fault.New(fault.Overloaded, "jobs wait for %s; retry later with the same Idempotency-Key", waiting.Round(time.Second))
	}
	return nil
}

// retryAfter returns when to ask again for a job, in seconds.
func (b *backlog) retryAfter() int {
	seconds := int(math.Ceil(time.Duration(b.waiting.Load()).Seconds()))
	return min(max(seconds, minRetryAfter), maxRetryAfter)
}
