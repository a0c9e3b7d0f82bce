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

// Handler runs a task. redelivered means that an earlier delivery of the task failed. An error
// wrapped by Snooze and the end of a context are no failures; any other error is one.
type Handler func(ctx context.Context, t Task, redelivered bool) error

// ErrSnoozed is in the chain of every error from Snooze and SnoozeFor.
var ErrSnoozed = errors.New("not now")

// Snooze wraps err so that asynq delivers the task again without counting a failure: after a second, or longer if
// the task has failed before.
func Snooze(err error) error { return SnoozeFor(err, 0) }

// SnoozeFor is Snooze with the delay until the next delivery; 0 or less: as Snooze.
func SnoozeFor(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", snoozed(after), err)
}

// snoozed is the delay of SnoozeFor.
type snoozed time.Duration

// Error implements error.
func (snoozed) Error() string { return ErrSnoozed.Error() }

// Is reports that it is ErrSnoozed.
func (snoozed) Is(target error) bool { return target == ErrSnoozed }

// CompareSnoozes compares two errors from Snooze or SnoozeFor by their next delivery. Snooze
// counts as its shortest delay, a second.
func CompareSnoozes(a, b error) int { return cmp.Compare(snoozeOf(a), snoozeOf(b)) }

func snoozeOf(err error) time.Duration {
	if after, _ := errors.AsType[snoozed](err); after > 0 {
		return time.Duration(after)
	}
	return time.Second
}

// Consumer handles the tasks of a kind, up to Concurrency at once.
type Consumer struct {
	Kind        string
	Concurrency int
	Handle      Handler
}

// Server delivers tasks to handlers. Every kind has its own asynq server, so a backlog of one
// kind takes no slot of another.
type Server struct {
	rdb       redis.UniversalClient
	namespace string
	kinds     []consumer
	logger    *slog.Logger
	pollEvery time.Duration
	polling   sync.WaitGroup
	stopPolls context.CancelFunc // nil: not started
}

// consumer is the asynq server of one kind, and the Redis client that it waits on.
type consumer struct {
	kind   string
	server *asynq.Server
	waiter *waiter
	handle asynq.Handler
}

// NewServer returns a Server for the tasks of some kinds. Shutdown closes it, started or not.
func NewServer(rdb redis.UniversalClient, namespace string, settings config.Worker, logger *slog.Logger, consumers ...Consumer) *Server {
	s := &Server{rdb: rdb, namespace: namespace, pollEvery: pollEvery, logger: logger}
	for _, c := range consumers {
		waiter := newWaiter(rdb, namespace, c.Kind)
		s.kinds = append(s.kinds, consumer{
			kind: c.Kind, waiter: waiter,
			handle: asynq.HandlerFunc(deliver(c.Handle)),
			server: asynq.NewServerFromRedisClient(waiter, asynq.Config{
				Concurrency:              c.Concurrency,
				TaskCheckInterval:        emptySleep,
				DelayedTaskCheckInterval: time.Hour, // polls enqueue what was delayed
				JanitorInterval:          time.Hour, // it deletes completed tasks that are retained: ours are not
				RetryDelayFunc:           retryDelay,
				IsFailure:                func(err error) bool { return !isSnoozed(err) },
				Queues:                   map[string]int{Name(namespace, c.Kind): 1},
				ErrorHandler:             asynq.ErrorHandlerFunc(logFailure(logger)),
				Logger:                   asynqLog{logger},
				ShutdownTimeout:          cmp.Or(settings.ShutdownTimeout, config.ShutdownTimeout),
			})})
	}
	return s
}

// Start starts delivery. If Redis is down, delivery begins when it is back. The polls stop when ctx
// ends, so call Shutdown before.
func (s *Server) Start(ctx context.Context) error {
	ctx, s.stopPolls = context.WithCancel(ctx)
	s.polling.Go(func() { s.poll(ctx) })
	for _, kind := range s.kinds {
		if err := kind.server.Start(kind.handle); err != nil {
			s.Shutdown()
			return err
		}
	}
	return nil
}

// Pause stops the dequeue of all kinds until resume is called. Running tasks go on, and the polls serve other
// workers. Only one pause may last at a time.
func (s *Server) Pause() (resume func()) {
	paused := make(pause)
	for _, kind := range s.kinds {
		kind.waiter.paused.Store(&paused)
	}
	return func() {
		for _, kind := range s.kinds {
			kind.waiter.paused.Store(nil)
		}
		close(paused)
	}
}

// Shutdown waits for running tasks of all kinds, up to the shutdown timeout, and requeues the rest.
func (s *Server) Shutdown() {
	for _, kind := range s.kinds {
		kind.waiter.close()
	}
	if s.stopPolls != nil {
		s.stopPolls()
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

func isSnoozed(err error) bool {
	return errors.Is(err, ErrSnoozed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// retryDelay returns the delay of SnoozeFor, or 1, 2, 4 … 30 s by the number of failures so far, plus
// up to a quarter, so that tasks which failed together are not redelivered together.
func retryDelay(failures int, err error, _ *asynq.Task) time.Duration {
	if after, _ := errors.AsType[snoozed](err); after > 0 {
		return time.Duration(after)
	}
	delay := min(time.Second<<min(failures, 5), 30*time.Second)
	return delay + rand.N(delay/4) //nolint:gosec // a jitter is no secret
}

func logFailure(logger *slog.Logger) func(context.Context, *asynq.Task, error) {
	return func(ctx context.Context, t *asynq.Task, err error) {
		id, _ := asynq.GetTaskID(ctx)
		level := slog.LevelError
		if isSnoozed(err) {
			level = slog.LevelInfo
		}
		logger.Log(ctx, level, "task not done", "task", id, "kind", t.Type(), "error", err)
	}
}
