package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
)

// Dispatcher enqueues messages in the background, so that no request waits for
// Redis. A message that it cannot enqueue stays in the outbox for the sweep
// lost-jobs.
type Dispatcher struct {
	messages *batch.Coalescer[Message, struct{}]
	missed   prometheus.Counter
	logger   *slog.Logger
}

const (
	dispatchInFlight = 4    // messages enqueued at the same time
	dispatchPending  = 4096 // messages waiting; any more are left to the sweep
	dispatchTimeout  = 2 * time.Second
)

// NewDispatcher starts a Dispatcher; Close stops it.
func NewDispatcher(client *queue.Client, logger *slog.Logger, registry prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{
		logger: logger,
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_outbox_undispatched_total",
			Help: "Outbox messages that could not be enqueued at once and were left to the sweep lost-jobs.",
		}),
	}
	registry.MustRegister(d.missed)
	d.messages = batch.New(
		batch.Options{Size: 1, InFlight: dispatchInFlight, Pending: dispatchPending, Timeout: dispatchTimeout},
		func(ctx context.Context, messages []Message) ([]struct{}, error) {
			err := Enqueue(ctx, client, messages[0])
			if err != nil {
				d.miss(messages[0], err)
			}
			return make([]struct{}, len(messages)), err
		})
	return d
}

// Dispatch takes messages whose jobs are committed and enqueues them in the
// background. It never waits.
func (d *Dispatcher) Dispatch(messages []Message) {
	for _, m := range messages {
		if err := d.messages.Submit(m); err != nil {
			d.miss(m, err)
		}
	}
}

// Close enqueues the messages that Dispatch has taken, and returns.
func (d *Dispatcher) Close() { d.messages.Close() }

func (d *Dispatcher) miss(m Message, err error) {
	d.missed.Inc()
	d.logger.Warn("outbox message not enqueued; lost-jobs will issue it again", "message", m.ID, "jobs", len(m.Jobs), "error", err)
}
