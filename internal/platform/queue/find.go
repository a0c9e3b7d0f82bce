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

// Find returns the states of tasks of one kind. It goes by what a worker would get, and not by
// what asynq has noted of a task: one that says it waits is missing when it is in no list. An
// error means that the states are unknown; it does not mean that a task is lost.
func (f *Finder) Find(ctx context.Context, kind string, ids []uuid.UUID) (map[uuid.UUID]TaskState, error) {
	states, err := f.find(ctx, kind, ids)
	if err != nil {
		return nil, fmt.Errorf("queue.Find(%s): %w", kind, err)
	}
	return states, nil
}

// record is what Redis says of one task. A key of another type says nothing.
type record struct {
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
	pending, err := f.pending(ctx, kind) // first: a task may be taken from it meanwhile, and then its record says so
	if err != nil {
		return nil, err
	}
	records := make([]record, len(ids))
	commands, err := f.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		key := func(part string) string { return asynqKey(f.namespace, kind, part) }
		for i, id := range ids {
			task := key("t:" + id.String())
			records[i] = record{pipe.HStrLen(ctx, task, "msg"), pipe.HGet(ctx, task, "state"),
				pipe.ZScore(ctx, key("retry"), id.String()), pipe.ZScore(ctx, key("scheduled"), id.String()), pipe.Get(ctx, activeTaskKey(f.namespace, id))}
		}
		return nil
	})
	if err := unanswered(commands, err); err != nil {
		return nil, err
	}
	present, err := ReadPresent(ctx, f.rdb, f.namespace)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		r := records[i]
		waits := pending[id.String()] || r.retry.Err() == nil || r.delayed.Err() == nil
		switch state := r.state.Val(); {
		case waits && r.size.Val() > 0:
			states[id] = Pending
		case state == "active" && slices.Contains(present[RoleWorker].Alive, holderOf(r.worker.Val())):
			states[id] = Active
		case state == "active", state == "archived", state == "completed": // asynq will not deliver it again, or is too slow
			states[id] = Orphaned
		default:
			states[id] = Missing
		}
	}
	return states, nil
}

// pendingPage is how many ids one command reads of a list.
const pendingPage = 10_000

// pending returns the ids in the list that workers take tasks from. Tasks are taken from its
// end, so reading from its beginning misses none that stays.
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

// unanswered returns the error of a pipeline, or the first of its commands that says more than
// that a key is not there, or is of another type.
func unanswered(commands []redis.Cmder, err error) error {
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

// Forget deletes the idempotency keys of these tasks, and asynq's of those that are missing.
func (f *Finder) Forget(ctx context.Context, kind string, states map[uuid.UUID]TaskState) error {
	var keys []string
	for id, state := range states {
		keys = append(keys, activeTaskKey(f.namespace, id))
		if state == Missing {
			keys = append(keys, asynqKey(f.namespace, kind, "t:"+id.String()))
		}
	}
	if len(keys) == 0 {
		return nil
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
