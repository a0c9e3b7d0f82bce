package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// TaskState is the state of a task in Redis.
type TaskState int

// The states of a task.
const (
	Missing  TaskState = iota // not in Redis: lost, or never enqueued
	Pending                   // in the queue, or snoozed
	Active                    // held by a worker that is alive, or on its way from one worker to the next
	Orphaned                  // delivered, but its worker is dead or has not acquired it yet, or asynq has given up
)

// Finder looks up tasks.
type Finder struct {
	rdb       redis.UniversalClient
	namespace string
}

// NewFinder returns a Finder for the tasks of a namespace.
func NewFinder(rdb redis.UniversalClient, namespace string) *Finder { return &Finder{rdb, namespace} }

// Find returns the states of tasks of one kind. It reads the lists that workers take tasks from and
// not only asynq's record: a task recorded as pending is missing if no list contains it. After an
// error the states are unknown; no task counts as lost.
func (f *Finder) Find(ctx context.Context, kind string, ids []uuid.UUID) (map[uuid.UUID]TaskState, error) {
	states, err := f.find(ctx, kind, ids)
	if err != nil {
		return nil, fmt.Errorf("queue.Find(%s): %w", kind, err)
	}
	return states, nil
}

// taskRecord is what Redis has about one task. Keys of another type are ignored.
type taskRecord struct {
	size    *redis.IntCmd // of its message
	state   *redis.StringCmd
	retry   *redis.FloatCmd
	delayed *redis.FloatCmd
	worker  *redis.StringCmd
}

func (f *Finder) find(ctx context.Context, kind string, ids []uuid.UUID) (map[uuid.UUID]TaskState, error) {
	states := make(map[uuid.UUID]TaskState, len(ids))
	if len(ids) == 0 {
		return states, nil
	}
	pending, err := f.pending(ctx, kind) // first: a task that is taken meanwhile is active in its record
	if err != nil {
		return nil, err
	}
	records := make([]taskRecord, len(ids))
	commands, err := f.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		key := func(part string) string { return asynqKey(f.namespace, kind, part) }
		for i, id := range ids {
			task := key("t:" + id.String())
			records[i] = taskRecord{pipe.HStrLen(ctx, task, "msg"), pipe.HGet(ctx, task, "state"),
				pipe.ZScore(ctx, key("retry"), id.String()), pipe.ZScore(ctx, key("scheduled"), id.String()), pipe.Get(ctx, activeTaskKey(f.namespace, id))}
		}
		return nil
	})
	if err := pipelineError(commands, err); err != nil {
		return nil, err
	}
	processes, err := ReadProcesses(ctx, f.rdb, f.namespace)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		r := records[i]
		isPending := pending[id.String()] || r.retry.Err() == nil || r.delayed.Err() == nil
		switch state, worker := r.state.Val(), r.worker.Val(); {
		case isPending && r.size.Val() > 0:
			states[id] = Pending
		case state == "active" && (worker == released || slices.Contains(processes[RoleWorker].Alive, workerOf(worker))):
			states[id] = Active
		case state == "active", state == "archived", state == "completed": // asynq will not redeliver it, or only much later
			states[id] = Orphaned
		default:
			states[id] = Missing
		}
	}
	return states, nil
}

// pendingPage is how many ids one command reads from a list.
const pendingPage = 10_000

// pending returns the ids in the list that workers take tasks from. Workers take from its end, so
// a read from its start misses no task that stays.
func (f *Finder) pending(ctx context.Context, kind string) (map[string]bool, error) {
	all := make(map[string]bool)
	for from := int64(0); ; from += pendingPage {
		page, err := f.rdb.LRange(ctx, asynqKey(f.namespace, kind, "pending"), from, from+pendingPage-1).Result()
		if err != nil && !redis.HasErrorPrefix(err, wrongType) {
			return nil, err
		}
		for _, id := range page {
			all[id] = true
		}
		if len(page) < pendingPage {
			return all, nil
		}
	}
}

// wrongType begins the error of a command on a key of another type.
const wrongType = "WRONGTYPE"

// pipelineError returns the first error of a pipeline, except that a key is missing or of another type.
func pipelineError(commands []redis.Cmder, err error) error {
	for _, command := range commands {
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, wrongType) {
			return err
		}
	}
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, wrongType) {
		return nil
	}
	return err
}

// Forget deletes the idempotency keys of tasks, and asynq's keys of the missing ones.
func (f *Finder) Forget(ctx context.Context, kind string, states map[uuid.UUID]TaskState) error {
	_, err := f.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // one DEL each: their slots differ in a Cluster
		for id, state := range states {
			pipe.Del(ctx, activeTaskKey(f.namespace, id))
			if state == Missing {
				pipe.Del(ctx, asynqKey(f.namespace, kind, "t:"+id.String()))
			}
		}
		return nil
	})
	return err
}

// Latency returns the age of the oldest pending task of a kind; 0 if there is none.
func (f *Finder) Latency(ctx context.Context, kind string) (time.Duration, error) {
	id, err := f.rdb.LIndex(ctx, asynqKey(f.namespace, kind, "pending"), -1).Result()
	var since int64
	if err == nil {
		since, err = f.rdb.HGet(ctx, asynqKey(f.namespace, kind, "t:"+id), "pending_since").Int64()
	}
	switch {
	case errors.Is(err, redis.Nil): // or a worker has taken it meanwhile
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("queue.Latency(%s): %w", kind, err)
	}
	return time.Since(time.Unix(0, since)), nil
}
