package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/batch"
)

// Task tells a worker that there is work.
type Task struct {
	ID      uuid.UUID // chosen by the caller, so that the task can be found later
	Kind    string    // also names the queue
	Payload []byte
}

// maxRetry is how often asynq may deliver a task again after a failure. It is only
// a bound: attempts are counted in Postgres, which decides when to give up.
const maxRetry = 1000

// registerEvery is how often a client tells Redis again which queues exist. asynq
// does so once per client, and its tools would not see the queues after a FLUSHALL.
const registerEvery = 5 * time.Second

// Client enqueues tasks.
type Client struct {
	rdb       redis.UniversalClient
	namespace string

	mu      sync.Mutex
	current *asynq.Client
	renewed time.Time
}

// taskTimeout is how long a worker may have a task, for example because Postgres is away; then it goes back to the queue.
const taskTimeout = 5 * time.Minute

// NewClient returns a Client.
func NewClient(rdb redis.UniversalClient, namespace string) *Client {
	return &Client{rdb: rdb, namespace: namespace}
}

// Enqueue puts a task in its queue. Enqueuing an ID twice is no error: after a
// network fault the first attempt may have arrived.
func (c *Client) Enqueue(ctx context.Context, t Task) error {
	_, err := c.client().EnqueueContext(ctx, asynq.NewTask(t.Kind, t.Payload),
		asynq.Queue(Name(c.namespace, t.Kind)), asynq.TaskID(t.ID.String()),
		asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return fmt.Errorf("queue.Enqueue(%s %s): %w", t.Kind, t.ID, err)
	}
	return nil
}

func (c *Client) client() *asynq.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.current == nil || now.Sub(c.renewed) > registerEvery {
		c.current, c.renewed = asynq.NewClientFromRedisClient(ringer{c.rdb, c.namespace}), now
	}
	return c.current
}

// Name returns the name of the queue that carries tasks of a kind.
func Name(namespace, kind string) string { return namespace + "-" + kind }

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
	d.tasks = batch.NewQuiet(batch.Options{Size: 1, InFlight: dispatchInFlight, Pending: dispatchPending, Timeout: dispatchTimeout},
		func(ctx context.Context, tasks []Task) error {
			err := client.Enqueue(ctx, tasks[0])
			if err != nil {
				d.miss(tasks[0], err)
			}
			return err
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
