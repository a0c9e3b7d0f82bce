package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// NewServer returns a Server for the tasks of the given kinds. Tasks of a kind wait
// while there are tasks of kinds before it in the list.
func NewServer(rdb redis.UniversalClient, namespace string, settings config.Worker, logger *slog.Logger,
	kinds []string, handlers map[string]Handler,
) *Server {
	queues := make(map[string]int, len(kinds))
	mux := asynq.NewServeMux()
	for i, kind := range kinds {
		queues[Name(namespace, kind)] = len(kinds) - i
		mux.HandleFunc(kind, deliver(handlers[kind]))
	}
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency:              settings.Concurrency,
		TaskCheckInterval:        settings.PollInterval,
		DelayedTaskCheckInterval: time.Second,
		RetryDelayFunc:           retryDelay,
		IsFailure:                func(err error) bool { return !isLater(err) },
		Queues:                   queues,
		StrictPriority:           true,
		ErrorHandler:             asynq.ErrorHandlerFunc(logFailure(logger)),
		Logger:                   asynqLog{logger},
		ShutdownTimeout:          settings.ShutdownTimeout,
	})
	return &Server{server: server, mux: mux}
}

// Server delivers tasks to handlers.
type Server struct {
	server *asynq.Server
	mux    *asynq.ServeMux
}

// Start starts delivering. If Redis is away, deliveries begin when it is back.
func (s *Server) Start() error { return s.server.Start(s.mux) }

// Shutdown waits for the tasks under way, up to the shutdown timeout, and gives the
// rest back to the queue.
func (s *Server) Shutdown() { s.server.Shutdown() }

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

// retryDelay is 1, 2, 4 … 30 s by the number of failures so far, plus up to a
// quarter, so that tasks that failed together do not come back together.
func retryDelay(failures int, _ error, _ *asynq.Task) time.Duration {
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
