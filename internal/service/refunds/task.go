package refunds

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

// TaskOf returns the task for a refund at its version. A task that is lost costs time
// only: the refund stays due.
func TaskOf(ref refund.Ref) (queue.Task, error) {
	payload, err := json.Marshal(ref)
	if err != nil {
		return queue.Task{}, fmt.Errorf("refunds.TaskOf(%s): %w", ref.ID, err)
	}
	return queue.Task{ID: uuid.New(), Kind: string(job.KindRefund), Payload: payload}, nil
}

// RefOf reads the refund of a task.
func RefOf(t queue.Task) (ref refund.Ref, err error) {
	if err := json.Unmarshal(t.Payload, &ref); err != nil {
		return refund.Ref{}, fmt.Errorf("refunds.RefOf(%s): %w", t.ID, err)
	}
	return ref, nil
}

// Due returns tasks for up to limit refunds that are due and that no worker has. They are
// due again after again, so a task that is lost is made again.
func Due(ctx context.Context, db postgres.DB, again time.Duration, limit int) ([]queue.Task, error) {
	refs, err := refund.TakeDue(ctx, db, again, limit)
	if err != nil {
		return nil, err
	}
	tasks := make([]queue.Task, len(refs))
	for i, ref := range refs {
		if tasks[i], err = TaskOf(ref); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}
