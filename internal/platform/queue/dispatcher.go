package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/batch"
)

const (
	dispatchInFlight = 8     // tasks enqueued at the same time
	dispatchPending  = 16384 // tasks that wait; any more are left to the sweeps
	dispatchTimeout  = 2 * time.Second
)

// Dispatcher enqueues tasks in the background, so that nobody waits for Redis. The work of
// a task that it cannot enqueue stays in Postgres, where the sweeps lost-jobs and due-items
// find it.
type Dispatcher struct {
	tasks  *batch.Coalescer[Task, struct{}]
	missed prometheus.Counter
	logger *slog.Logger
}

// NewDispatcher starts a Dispatcher; Close stops it.
func NewDispatcher(client *Client, logger *slog.Logger, registry prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{logger: logger, missed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "triprize_tasks_undispatched_total",
		Help: "Tasks that could not be enqueued at once, and were left to the sweeps lost-jobs and due-items.",
	})}
	registry.MustRegister(d.missed)
	d.tasks = batch.New(
		batch.Options{Size: 1, InFlight: dispatchInFlight, Pending: dispatchPending, Timeout: dispatchTimeout},
		func(ctx context.Context, tasks []Task) ([]struct{}, error) {
			err := client.Enqueue(ctx, tasks[0])
			if err != nil {
				d.miss(tasks[0], err)
			}
			return make([]struct{}, len(tasks)), err
		})
	return d
}

// Dispatch takes tasks whose work is committed, and enqueues them in the background. It
// never waits.
func (d *Dispatcher) Dispatch(tasks ...Task) {
	for _, task := range tasks {
		if err := d.tasks.Submit(task); err != nil {
			d.miss(task, err)
		}
	}
}

// Close enqueues the tasks that Dispatch has taken, and returns.
func (d *Dispatcher) Close() { d.tasks.Close() }

func (d *Dispatcher) miss(task Task, err error) {
	d.missed.Inc()
	d.logger.Warn("a task is not enqueued; a sweep will enqueue it", "kind", task.Kind, "task", task.ID, "error", err)
}
