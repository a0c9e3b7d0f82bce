package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"triprize/internal/platform/config"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Heartbeat is the [Presence] of a worker, and says which tasks the worker has. Each of its
// writes may fail: the worker then counts as dead, its tasks are enqueued again, and
// Postgres lets no effect happen twice.
type Heartbeat struct {
	*Presence
	worker string
}

// NewHeartbeat returns the Heartbeat of a worker.
func NewHeartbeat(rdb redis.UniversalClient, namespace, worker string, settings config.Worker) *Heartbeat {
	return &Heartbeat{Presence: NewPresence(rdb, namespace, RoleWorker, worker, settings), worker: worker}
}

// inProgress begins the value of a task's idempotency key; the worker that has the task follows.
const inProgress = "IN_PROGRESS "

// Claim sets the idempotency key of a task, so that no other worker does the task meanwhile.
// It is false while another worker that is alive has the task. A key whose worker is not alive is
// taken over at once. With an error nothing is known: Postgres lets no effect happen twice.
//
// The key ends by itself when the task goes back to the queue, after taskTimeout: so none is left
// for ever whose removal has failed.
func (h *Heartbeat) Claim(ctx context.Context, task uuid.UUID) (bool, error) {
	key, mine := activeTaskKey(h.namespace, task), inProgress+h.worker
	value, err := h.rdb.SetArgs(ctx, key, mine, redis.SetArgs{Mode: "NX", Get: true, TTL: taskTimeout}).Result()
	switch {
	case errors.Is(err, redis.Nil): // nobody had it
		return true, nil
	case err != nil && !redis.HasErrorPrefix(err, wrongType):
		return true, err
	case value == mine:
		return true, nil
	}
	present, err := ReadPresent(ctx, h.rdb, h.namespace)
	if err != nil {
		return true, err
	}
	if slices.Contains(present[RoleWorker].Alive, holderOf(value)) {
		return false, nil
	}
	return true, h.rdb.Set(ctx, key, mine, taskTimeout).Err()
}

// releaseScript deletes a key that has a value, so that nobody deletes what another worker has taken over.
var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

// Release deletes the idempotency key of a task that this worker no longer works on.
func (h *Heartbeat) Release(ctx context.Context, task uuid.UUID) error {
	return releaseScript.Run(ctx, h.rdb, []string{activeTaskKey(h.namespace, task)}, inProgress+h.worker).Err()
}

// holderOf returns the worker that a key of a task names; empty: none.
func holderOf(value string) string {
	worker, ok := strings.CutPrefix(value, inProgress)
	if !ok {
		return ""
	}
	return worker
}

func activeTaskKey(namespace string, task uuid.UUID) string {
	return namespace + ":active-task:" + task.String()
}
