package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// Handler does the work of a task. redelivered tells that an earlier delivery of
// the same task failed. An error wrapped by Later means "not now" and is no
// failure; neither is the end of a context. Any other error is one.
type Handler func(ctx context.Context, t Task, redelivered bool) error

// ErrLater is in the chain of every error that Later returns.
var ErrLater = errors.New("not now")

// Later marks err as no failure of the work: the task is delivered again, and the
// delivery does not count.
func Later(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLater, err)
}

// LaterIn is Later with the time until the next delivery.
func LaterIn(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayed{error: Later(err), after: after}
}

// delayed is an error of Later that says when.
type delayed struct {
	error
	after time.Duration
}

// Unwrap returns the error.
func (d *delayed) Unwrap() error { return d.error }

// Sooner returns that of two errors of Later or LaterIn whose next delivery comes first;
// nil stands for none. One of Later comes at the usual delays, and before any of LaterIn
// that is not shorter than the first of these.
func Sooner(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case afterOf(b) < afterOf(a):
		return b
	}
	return a
}

func afterOf(err error) time.Duration {
	if d, ok := errors.AsType[*delayed](err); ok {
		return d.after
	}
	return time.Second
}

// Share is how many tasks of a kind a process has in hand at once, and what does them.
type Share struct {
	Kind   string
	Tasks  int
	Handle Handler
}

// Server delivers tasks to handlers. Every kind has an asynq server of its own, so
// that a backlog of one kind takes no slot of another.
type Server struct {
	rdb       *redis.Client
	namespace string
	kinds     []delivery
	pollEvery time.Duration // see the constant
	polling   sync.WaitGroup
	endPolls  context.CancelFunc // nil: not started
}

// delivery is the asynq server of one kind, and the Redis client that it waits with.
type delivery struct {
	kind   string
	server *asynq.Server
	waiter *waiter
	handle asynq.Handler
}

// NewServer returns a Server for the tasks of some kinds. Shutdown closes it, started or not.
func NewServer(rdb *redis.Client, namespace string, settings config.Worker, logger *slog.Logger, shares ...Share) *Server {
	s := &Server{rdb: rdb, namespace: namespace, pollEvery: pollEvery}
	for _, share := range shares {
		waiter := newWaiter(rdb, namespace, share.Kind)
		s.kinds = append(s.kinds, delivery{
			kind: share.Kind, waiter: waiter,
			handle: asynq.HandlerFunc(deliver(share.Handle)),
			server: asynq.NewServerFromRedisClient(waiter, asynq.Config{
				Concurrency:              share.Tasks,
				TaskCheckInterval:        emptyPause,
				DelayedTaskCheckInterval: time.Second,
				JanitorInterval:          time.Hour, // it deletes tasks that are kept when they are done: none of ours is
				RetryDelayFunc:           retryDelay,
				IsFailure:                func(err error) bool { return !isLater(err) },
				Queues:                   map[string]int{Name(namespace, share.Kind): 1},
				ErrorHandler:             asynq.ErrorHandlerFunc(logFailure(logger)),
				Logger:                   asynqLog{logger},
				ShutdownTimeout:          cmp.Or(settings.ShutdownTimeout, config.ShutdownTimeout),
			})})
	}
	return s
}

// Start starts delivering. If Redis is away, deliveries begin when it is back.
// Call Shutdown before ctx ends: the polls end with it.
func (s *Server) Start(ctx context.Context) error {
	ctx, s.endPolls = context.WithCancel(ctx)
	s.polling.Go(func() { s.poll(ctx) })
	for _, kind := range s.kinds {
		if err := kind.server.Start(kind.handle); err != nil {
			s.Shutdown()
			return err
		}
	}
	return nil
}

// Shutdown waits for the tasks under way, of all kinds together up to the shutdown
// timeout, and gives the rest back to the queue.
func (s *Server) Shutdown() {
	for _, kind := range s.kinds {
		kind.waiter.close()
	}
	if s.endPolls != nil {
		s.endPolls()
	}
	s.polling.Wait()
	var all sync.WaitGroup
	for _, kind := range s.kinds {
		all.Go(kind.server.Shutdown)
	}
	all.Wait()
}

func deliver(handle Handler) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, t *asynq.Task) error {
		text, _ := asynq.GetTaskID(ctx)
		id, err := uuid.Parse(text)
		if err != nil {
			return errors.Join(errors.New("the id of the task is not a UUID; this system did not enqueue it"), asynq.SkipRetry)
		}
		retried, _ := asynq.GetRetryCount(ctx)
		return handle(ctx, Task{ID: id, Kind: t.Type(), Payload: t.Payload()}, retried > 0)
	}
}

func isLater(err error) bool {
	return errors.Is(err, ErrLater) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// retryDelay is what LaterIn says. Otherwise it is 1, 2, 4 … 30 s by the number of
// failures so far, plus up to a quarter, so that tasks that failed together do not come
// back together.
func retryDelay(failures int, err error, _ *asynq.Task) time.Duration {
	if d, ok := errors.AsType[*delayed](err); ok {
		return max(d.after, 0)
	}
	delay := min(time.Second<<min(failures, 5), 30*time.Second)
	return delay + rand.N(delay/4) //nolint:gosec // a jitter is no secret
}

func logFailure(logger *slog.Logger) func(context.Context, *asynq.Task, error) {
	return func(ctx context.Context, t *asynq.Task, err error) {
		id, _ := asynq.GetTaskID(ctx)
		level := slog.LevelError
		if isLater(err) {
			level = slog.LevelInfo
		}
		logger.Log(ctx, level, "task not done", "task", id, "kind", t.Type(), "error", err)
	}
}
