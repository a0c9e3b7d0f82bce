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

// backlog estimates how long accepted jobs have to wait: as long as the oldest task
// in the queues has waited. It sets Retry-After, and refuses new jobs when the wait
// is longer than accept.longest_wait.
type backlog struct {
	finder  *queue.Finder
	longest time.Duration
	waiting atomic.Int64 // nanoseconds; 0 while it is not known
}

// backlogInterval is how often the queues are read.
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

// run reads the queues at every interval until ctx ends.
func (b *backlog) run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(backlogInterval)
	defer ticker.Stop()
	for {
		var longest time.Duration
		for _, kind := range job.QueueKinds { // each by itself: for a queue that was never used Wait returns an error
			waiting, err := b.finder.Wait(string(kind))
			if err != nil {
				logger.Debug("a queue cannot be read", "kind", kind, "error", err)
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

// retryAfter returns after how many seconds a client should ask for a job again.
func (b *backlog) retryAfter() int {
	seconds := int(math.Ceil(time.Duration(b.waiting.Load()).Seconds()))
	return min(max(seconds, minRetryAfter), maxRetryAfter)
}
