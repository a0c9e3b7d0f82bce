package job

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
)

// Ringer enqueues rings in the background, so that nobody who accepts work
// waits for Redis. What it cannot deliver stays in the outbox for lost-jobs.
type Ringer struct {
	rings  *batch.Coalescer[Ring, struct{}]
	missed prometheus.Counter
	logger *slog.Logger
}

const (
	ringersInFlight = 4    // enqueues under way at once
	ringsWaiting    = 4096 // more are left to the sweep
	ringTimeout     = 2 * time.Second
)

// NewRinger starts a Ringer; Close stops it.
func NewRinger(client *queue.Client, logger *slog.Logger, registry prometheus.Registerer) *Ringer {
	r := &Ringer{
		logger: logger,
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_rings_missed_total",
			Help: "Rings that could not be enqueued at once and were left to the sweep lost-jobs.",
		}),
	}
	registry.MustRegister(r.missed)
	r.rings = batch.New(
		batch.Options{Size: 1, InFlight: ringersInFlight, Pending: ringsWaiting, Timeout: ringTimeout},
		func(ctx context.Context, rings []Ring) ([]struct{}, error) {
			err := Enqueue(ctx, client, rings[0])
			if err != nil {
				r.miss(rings[0], err)
			}
			return make([]struct{}, len(rings)), err
		})
	return r
}

// Ring takes rings whose jobs are committed. It never waits.
func (r *Ringer) Ring(rings []Ring) {
	for _, ring := range rings {
		if err := r.rings.Submit(ring); err != nil {
			r.miss(ring, err)
		}
	}
}

// Close enqueues what it has taken and returns.
func (r *Ringer) Close() { r.rings.Close() }

func (r *Ringer) miss(ring Ring, err error) {
	r.missed.Inc()
	r.logger.Warn("ring not enqueued; lost-jobs will ring again", "ring", ring.ID, "jobs", len(ring.Jobs), "error", err)
}

// Enqueue puts the task of one ring in its queue.
func Enqueue(ctx context.Context, client *queue.Client, ring Ring) error {
	task, err := ring.Task()
	if err != nil {
		return err
	}
	return client.Enqueue(ctx, task)
}
