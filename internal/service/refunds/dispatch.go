package refunds

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
	"triprize/internal/store/refund"
)

const (
	dispatchInFlight = 2    // tasks enqueued at the same time
	dispatchPending  = 2048 // tasks that wait; any more are left to the sweep
	dispatchTimeout  = 2 * time.Second
)

// Dispatcher enqueues tasks of refunds in the background, so that nobody waits for Redis.
// What it cannot enqueue is found by the sweep unsettled-payments: a refund is due.
type Dispatcher struct {
	tasks  *batch.Coalescer[queue.Task, struct{}]
	missed prometheus.Counter
}

// NewDispatcher starts a Dispatcher; Close stops it.
func NewDispatcher(client *queue.Client, logger *slog.Logger, registry prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{missed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "triprize_refunds_undispatched_total",
		Help: "Refunds that could not be enqueued at once and were left to the sweep unsettled-payments.",
	})}
	registry.MustRegister(d.missed)
	d.tasks = batch.New(
		batch.Options{Size: 1, InFlight: dispatchInFlight, Pending: dispatchPending, Timeout: dispatchTimeout},
		func(ctx context.Context, tasks []queue.Task) ([]struct{}, error) {
			err := client.Enqueue(ctx, tasks[0])
			if err != nil {
				d.missed.Inc()
				logger.Debug("a refund is not enqueued; the sweep unsettled-payments will enqueue it", "error", err)
			}
			return make([]struct{}, len(tasks)), err
		})
	return d
}

// Dispatch enqueues the tasks of refunds whose transaction has committed. It never waits.
func (d *Dispatcher) Dispatch(refs []refund.Ref) {
	for _, ref := range refs {
		task, err := TaskOf(ref)
		if err == nil {
			err = d.tasks.Submit(task)
		}
		if err != nil { // full
			d.missed.Inc()
		}
	}
}

// Close enqueues what was dispatched, and returns.
func (d *Dispatcher) Close() { d.tasks.Close() }
