package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Otherwise a task that is put off for a second could wait for two: for the poll, and for
// asynq's next look.
func TestAPollIsBelievedUntilItIsOldOrThisProcessDelaysATask(t *testing.T) {
	t.Parallel()
	w := newWaiter(redis.NewClient(&redis.Options{}), "ns", "purchase") // never connects
	defer w.close()
	none := func(after time.Duration) bool { return w.delayed.noneDue(time.Now().Add(after)) }
	if none(0) {
		t.Error("without a poll it is known that no delay is over")
	}
	w.delayed.update(time.Now(), -1)
	if !none(0) || none(2*pollEvery) {
		t.Errorf("after a poll: %v, much later: %v", none(0), none(2*pollEvery))
	}
	retry := []string{"asynq:{ns-purchase}:t:1", "asynq:{ns-purchase}:active", "asynq:{ns-purchase}:lease", "asynq:{ns-purchase}:retry"}
	w.run(t.Context(), retry, func(redis.Scripter) *redis.Cmd {
		w.delayed.update(time.Now(), -1) // just before the task is there
		return redis.NewCmdResult("OK", nil)
	})
	if none(0) {
		t.Error("the process has delayed a task since, and believes the poll")
	}
	w.delayed.update(time.Now(), time.Now().Add(time.Minute).Unix())
	if !none(0) {
		t.Error("a delay of a minute is over")
	}
	w.delayed.update(time.Now(), time.Now().Unix())
	if none(0) {
		t.Error("a delay is not over when it is")
	}
}
