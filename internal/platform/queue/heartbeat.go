package queue

import (
	"context"
	"time"

	"triprize/internal/platform/config"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Heartbeat is the [Presence] of a worker, and says which tasks the worker has. Each of its
// writes may fail: the worker then counts as dead, its tasks are enqueued again, and
// Postgres lets no effect happen twice.
type Heartbeat struct {
	*Presence
	worker  string
	taskTTL time.Duration
}

// NewHeartbeat returns the Heartbeat of a worker.
func NewHeartbeat(rdb redis.UniversalClient, namespace, worker string, settings config.Worker) *Heartbeat {
	return &Heartbeat{Presence: NewPresence(rdb, namespace, RoleWorker, worker, settings), worker: worker, taskTTL: settings.TaskTimeout}
}

// Started records that this worker works on a task. The record ends by itself when
// the task goes back to the queue, after task_timeout: so none is left for ever whose
// removal has failed, or whose worker has died.
func (h *Heartbeat) Started(ctx context.Context, task uuid.UUID) error {
	return h.rdb.Set(ctx, activeTaskKey(h.namespace, task), h.worker, h.taskTTL).Err()
}

// Finished removes the record of a task that this worker no longer works on.
func (h *Heartbeat) Finished(ctx context.Context, task uuid.UUID) error {
	return h.rdb.Del(ctx, activeTaskKey(h.namespace, task)).Err()
}

func activeTaskKey(namespace string, task uuid.UUID) string {
	return namespace + ":active-task:" + task.String()
}
