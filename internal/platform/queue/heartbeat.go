package queue

import (
	"context"
	"log/slog"
	"time"

	"triprize/internal/platform/config"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Heartbeat says in Redis that this worker is alive, and which tasks it works on.
// Each of its writes may fail: the worker then counts as dead, its tasks are
// enqueued again, and Postgres lets no effect happen twice.
type Heartbeat struct {
	rdb       redis.UniversalClient
	namespace string
	worker    string
	every     time.Duration
	ttl       time.Duration
	taskTTL   time.Duration
}

// NewHeartbeat returns the Heartbeat of a worker. It writes every
// heartbeat_interval; the worker counts as dead when it has not written for
// heartbeat_ttl.
func NewHeartbeat(rdb redis.UniversalClient, namespace, worker string, settings config.Worker) *Heartbeat {
	return &Heartbeat{rdb: rdb, namespace: namespace, worker: worker,
		every: settings.HeartbeatInterval, ttl: settings.HeartbeatTTL, taskTTL: settings.TaskTimeout}
}

// Run writes the heartbeat until ctx ends, then removes it.
func (h *Heartbeat) Run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	for {
		if err := h.beat(ctx); err != nil && ctx.Err() == nil {
			logger.Warn("heartbeat not delivered", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.every)
			defer cancel()
			_ = h.rdb.Del(farewell, workerKey(h.namespace, h.worker)).Err()
			return
		}
	}
}

func (h *Heartbeat) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	return h.rdb.Set(ctx, workerKey(h.namespace, h.worker), time.Now().UTC().Format(time.RFC3339), h.ttl).Err()
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

func workerKey(namespace, worker string) string { return namespace + ":worker:" + worker }

func activeTaskKey(namespace string, task uuid.UUID) string {
	return namespace + ":active-task:" + task.String()
}
