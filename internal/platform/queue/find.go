package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// TaskState is where a task is.
type TaskState int

// The states of a task.
const (
	Missing  TaskState = iota // not in Redis: lost, or never enqueued
	Pending                   // in the queue, or waiting for its next delivery
	Active                    // with a worker that is alive
	Orphaned                  // delivered, but its worker is dead or asynq has given it up
)

// Finder looks tasks up.
type Finder struct {
	rdb       redis.UniversalClient
	namespace string
	inspector *asynq.Inspector
}

// NewFinder returns a Finder for the tasks of a namespace.
func NewFinder(rdb redis.UniversalClient, namespace string) *Finder {
	return &Finder{rdb: rdb, namespace: namespace, inspector: asynq.NewInspectorFromRedisClient(rdb)}
}

// Find returns the states of tasks of one kind. An error means that the states are
// unknown; it does not mean that a task is lost.
func (f *Finder) Find(ctx context.Context, kind string, ids []uuid.UUID) (map[uuid.UUID]TaskState, error) {
	states := make(map[uuid.UUID]TaskState, len(ids))
	var active []uuid.UUID
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := f.inspector.GetTaskInfo(Name(f.namespace, kind), id.String())
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
			states[id] = Missing
		case err != nil:
			return nil, fmt.Errorf("queue.Find(%s %s): %w", kind, id, err)
		case info.State == asynq.TaskStateActive:
			active = append(active, id)
		case info.State == asynq.TaskStatePending, info.State == asynq.TaskStateScheduled, info.State == asynq.TaskStateRetry:
			states[id] = Pending
		default: // archived or completed: asynq will not deliver it again
			states[id] = Orphaned
		}
	}
	if err := f.findWorkers(ctx, active, states); err != nil {
		return nil, err
	}
	return states, nil
}

// findWorkers adds the states of active tasks, which asynq has delivered: it looks
// whether their workers are alive.
func (f *Finder) findWorkers(ctx context.Context, active []uuid.UUID, states map[uuid.UUID]TaskState) error {
	if len(active) == 0 {
		return nil
	}
	workers := make([]*redis.StringCmd, len(active))
	_, err := f.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range active {
			workers[i] = pipe.Get(ctx, activeTaskKey(f.namespace, id))
		}
		return nil
	})
	for _, w := range workers {
		if err == nil || errors.Is(err, redis.Nil) { // Nil: nobody has recorded one of the tasks, and others may have failed
			err = w.Err()
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("queue.Find: who is at work on tasks: %w", err)
		}
	}
	present, err := ReadPresent(ctx, f.rdb, f.namespace)
	if err != nil {
		return fmt.Errorf("queue.Find: who is alive: %w", err)
	}
	for i, id := range active {
		states[id] = Orphaned
		if slices.Contains(present[RoleWorker].Alive, workers[i].Val()) {
			states[id] = Active
		}
	}
	return nil
}

// Forget removes the records of which worker had these tasks.
func (f *Finder) Forget(ctx context.Context, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = activeTaskKey(f.namespace, id)
	}
	return f.rdb.Del(ctx, keys...).Err()
}

// Wait returns how long the oldest waiting task of a kind has been waiting; 0 when
// none waits.
func (f *Finder) Wait(kind string) (time.Duration, error) {
	info, err := f.inspector.GetQueueInfo(Name(f.namespace, kind))
	if err != nil && strings.Contains(err.Error(), "NOT_FOUND") { // no task of the kind was ever enqueued; asynq exports no error for it
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("queue.Wait(%s): %w", kind, err)
	}
	return info.Latency, nil
}
