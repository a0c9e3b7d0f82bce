package webhooks

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/store/webhook"
)

// The kinds of tasks: a turn with an endpoint. Endpoints that keep a worker waiting, because
// they fail or answer slowly, have a queue and slots apart from all others: so many of them
// as you like delay nobody else.
const (
	Kind     = "webhook"
	KindSlow = "webhook-slow"
)

// TaskOf returns the task for a turn with an endpoint. An endpoint has one task at a time: the
// next one has another id, because a turn counts up the version. A task that is lost is made
// again, because something is still due.
func TaskOf(ref webhook.Ref) (queue.Task, error) {
	payload, err := json.Marshal(ref)
	if err != nil {
		return queue.Task{}, fmt.Errorf("webhooks.TaskOf(%s): %w", ref.ID, err)
	}
	kind := Kind
	if ref.Slow {
		kind = KindSlow
	}
	return queue.Task{ID: uuid.NewSHA1(ref.ID, fmt.Append(nil, ref.LeaseVersion)), Kind: kind, Payload: payload}, nil
}

// RefOf reads the endpoint of a task.
func RefOf(t queue.Task) (ref webhook.Ref, err error) {
	if err := json.Unmarshal(t.Payload, &ref); err != nil {
		return webhook.Ref{}, fmt.Errorf("webhooks.RefOf(%s): %w", t.ID, err)
	}
	return ref, nil
}

// Due returns tasks for up to limit endpoints that something is due for and that no worker
// has, after the given endpoint, and the last one of them.
func Due(ctx context.Context, db postgres.DB, after uuid.UUID, limit int) (tasks []queue.Task, last uuid.UUID, err error) {
	refs, err := webhook.Due(ctx, db, after, limit)
	if err != nil {
		return nil, after, err
	}
	tasks = make([]queue.Task, len(refs))
	for i, ref := range refs {
		if tasks[i], err = TaskOf(ref); err != nil {
			return nil, after, err
		}
		after = ref.ID
	}
	return tasks, after, nil
}
