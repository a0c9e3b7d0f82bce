// Package queue carries tasks to the workers, on asynq.
//
// A [Task] is only a notification. Everything that must not be lost is in Postgres, and a lost
// task is enqueued again. Delivery is at least once. The package does not interpret tasks.
//
// A [Server] runs one asynq server per kind of task, with its own concurrency, so a backlog
// of one kind takes no slot of another.
//
// An idle worker blocks on a wakeup list in Redis. Enqueuing or requeuing a task pushes a wakeup
// in the same round trip; the worker that forwards a task at the end of its delay pushes one in a
// second. Redis delivers each wakeup to the worker of the kind that has waited longest. The
// [Server]s of all workers poll the queues, one of them in a second, for tasks without a wakeup: after a pause of the queue,
// from asynqmon, or after a lost one. [notifier] and [waiter] implement this below asynq.
//
// asynq detects a dead worker only after 30 to 120 seconds. So every worker, and the scheduler
// that leads, sends heartbeats to Redis ([Heartbeat]); a worker also records which tasks it holds
// ([Heartbeat.Acquire]). [Finder.Find] reports whether the worker of a task is alive, [ReadProcesses]
// which processes are.
//
// Redis keys, with the namespace ns of the settings:
//
//	asynq:{ns-<kind>}:…     asynq's own
//	ns:wakeup:{ns-<kind>}   wakeups that no worker has received yet, at most 16 (list)
//	ns:polled:…             set for a second after a poll (string)
//	ns:processes            until when <role>:<id> counts as alive, in ms (sorted set); kept 10 minutes longer
//	ns:active-task:<task>   the idempotency key of a task: IN_PROGRESS and the worker that holds it, or RELEASED
//	                        (renewed by heartbeats; TTL: theirs)
//
// The braces are hash tags: in a Redis Cluster everything of one queue is in one slot, so on one node.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/batch"
)

// Task notifies a worker that there is work.
type Task struct {
	ID      uuid.UUID // chosen by the caller, so that the task can be found later
	Kind    string    // also names the queue
	Payload []byte
}

// maxRetry is a safety limit on asynq's retries. Postgres counts attempts and decides when to give up.
const maxRetry = 1000

// Client enqueues tasks.
type Client struct {
	namespace string
	asynq     *asynq.Client
}

// taskTimeout is how long a worker may hold a task, for example while Postgres is down. Then asynq requeues it.
const taskTimeout = 5 * time.Minute

// NewClient returns a Client.
func NewClient(rdb redis.UniversalClient, namespace string) *Client {
	return &Client{namespace, asynq.NewClientFromRedisClient(notifier{rdb, namespace})}
}

// Enqueue enqueues a task. Enqueuing an ID twice is no error: after a network fault the first
// attempt may have succeeded.
func (c *Client) Enqueue(ctx context.Context, t Task) error {
	_, err := c.asynq.EnqueueContext(ctx, asynq.NewTask(t.Kind, t.Payload),
		asynq.Queue(Name(c.namespace, t.Kind)), asynq.TaskID(t.ID.String()),
		asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return fmt.Errorf("queue.Enqueue(%s %s): %w", t.Kind, t.ID, err)
	}
	return nil
}

// Name returns the name of the queue that carries tasks of a kind.
func Name(namespace, kind string) string { return namespace + "-" + kind }

const (
	dispatchInFlight = 8     // tasks enqueued at the same time
	dispatchPending  = 16384 // tasks waiting to be enqueued; the sweeps enqueue any more
	dispatchTimeout  = 2 * time.Second
)

// Dispatcher enqueues tasks in the background, so that no caller waits for Redis. If it cannot enqueue
// a task, the sweeps lost-jobs and due-items find the work in Postgres.
type Dispatcher struct {
	tasks  *batch.Coalescer[Task, struct{}]
	missed prometheus.Counter
	logger *slog.Logger
}

// NewDispatcher starts a Dispatcher; Close stops it. timeout bounds the enqueuing of a task; 0: as usual.
func NewDispatcher(client *Client, timeout time.Duration, logger *slog.Logger, registry prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{logger: logger, missed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "triprize_tasks_undispatched_total",
		Help: "Tasks that could not be enqueued at once, and were left to the sweeps lost-jobs and due-items.",
	})}
	registry.MustRegister(d.missed)
	d.tasks = batch.NewQuiet(batch.Options{Size: 1, InFlight: dispatchInFlight, Pending: dispatchPending, Timeout: cmp.Or(timeout, dispatchTimeout)},
		func(ctx context.Context, tasks []Task) error {
			err := client.Enqueue(ctx, tasks[0])
			if err != nil {
				d.logMissed(tasks[0], err)
			}
			return err
		})
	return d
}

// Dispatch enqueues tasks in the background, after the commit of their work. It never blocks.
func (d *Dispatcher) Dispatch(tasks ...Task) {
	for _, task := range tasks {
		if err := d.tasks.Submit(task); err != nil {
			d.logMissed(task, err)
		}
	}
}

// Close enqueues the remaining tasks and returns.
func (d *Dispatcher) Close() { d.tasks.Close() }

func (d *Dispatcher) logMissed(task Task, err error) {
	d.missed.Inc()
	d.logger.Warn("a task is not enqueued; a sweep will enqueue it", "kind", task.Kind, "task", task.ID, "error", err)
}
