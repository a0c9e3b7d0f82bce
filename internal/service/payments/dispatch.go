package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

const (
	dispatchInFlight = 4    // tasks enqueued at the same time
	dispatchPending  = 8192 // tasks that wait; any more are left to the sweep
	dispatchTimeout  = 2 * time.Second
)

// Dispatcher enqueues tasks in the background, so that nobody waits for Redis. What it
// cannot enqueue is found by the sweep unsettled-payments: a payment is due at some
// time, and an event stays open.
type Dispatcher struct {
	tasks  *batch.Coalescer[queue.Task, struct{}]
	missed prometheus.Counter
	logger *slog.Logger
}

// NewDispatcher starts a Dispatcher; Close stops it.
func NewDispatcher(client *queue.Client, logger *slog.Logger, registry prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{logger: logger, missed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "triprize_payments_undispatched_total",
		Help: "Payments, refunds and events that could not be enqueued at once and were left to the sweep unsettled-payments.",
	})}
	registry.MustRegister(d.missed)
	d.tasks = batch.New(
		batch.Options{Size: 1, InFlight: dispatchInFlight, Pending: dispatchPending, Timeout: dispatchTimeout},
		func(ctx context.Context, tasks []queue.Task) ([]struct{}, error) {
			err := client.Enqueue(ctx, tasks[0])
			if err != nil {
				d.miss(tasks[0].Kind, err)
			}
			return make([]struct{}, len(tasks)), err
		})
	return d
}

// Payments enqueues the tasks of payments whose transaction has committed. It never
// waits.
func (d *Dispatcher) Payments(refs []payment.Ref) {
	for _, ref := range refs {
		task, err := TaskOf(ref)
		if err == nil {
			err = d.tasks.Submit(task)
		}
		if err != nil {
			d.miss(string(job.KindPayment), err)
		}
	}
}

// Events enqueues a task that works off stored events. It never waits.
func (d *Dispatcher) Events() {
	if err := d.tasks.Submit(EventsTask()); err != nil {
		d.miss(string(job.KindEvent), err)
	}
}

// Close enqueues what was dispatched, and returns.
func (d *Dispatcher) Close() { d.tasks.Close() }

func (d *Dispatcher) miss(kind string, err error) {
	d.missed.Inc()
	d.logger.Warn("a task is not enqueued; the sweep unsettled-payments will enqueue it", "kind", kind, "error", err)
}

// TaskOf returns a task for a payment. It has an id of its own: tasks of one payment may
// follow each other.
func TaskOf(ref payment.Ref) (queue.Task, error) {
	payload, err := json.Marshal(ref)
	if err != nil {
		return queue.Task{}, fmt.Errorf("payments.TaskOf(%s): %w", ref.PurchaseID, err)
	}
	return queue.Task{ID: uuidv7.New(), Kind: string(job.KindPayment), Payload: payload}, nil
}

// RefOf returns the payment of a task.
func RefOf(t queue.Task) (ref payment.Ref, err error) {
	if err := json.Unmarshal(t.Payload, &ref); err != nil {
		return payment.Ref{}, fmt.Errorf("payments.RefOf: task %s: %w", t.ID, err)
	}
	return ref, nil
}

// EventsTask returns a task that works off stored events, whichever they are.
func EventsTask() queue.Task { return queue.Task{ID: uuidv7.New(), Kind: string(job.KindEvent)} }
