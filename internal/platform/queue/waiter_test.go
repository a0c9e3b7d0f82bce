package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/testkit/servers"
)

// asynq has counted the lease of the task before the wait.
func TestAfterAProcessStoodStillNoTaskIsTakenWithAnOldLease(t *testing.T) {
	t.Parallel()
	settings := servers.RedisSettings(t)
	rdb := servers.Redis(t, settings)
	w := newWaiter(rdb, settings.Redis.Namespace, "purchase")
	t.Cleanup(w.close)
	w.empty = true
	now := time.Now()
	w.now = func() time.Time { now = now.Add(maxWait + waitGrace + 1); return now }
	wake(t.Context(), rdb, wakeupKey(settings.Redis.Namespace, "purchase"), 1)
	runs := 0
	eval := func(redis.Scripter) *redis.Cmd { runs++; return redis.NewCmdResult("task", nil) }
	if cmd := w.take(t.Context(), eval); runs != 0 || !errors.Is(cmd.Err(), redis.Nil) {
		t.Errorf("%d tasks were taken: %v", runs, cmd)
	}
	if cmd := w.take(t.Context(), eval); runs != 1 || cmd.Err() != nil {
		t.Errorf("%d tasks were taken with a new lease: %v", runs, cmd)
	}
}

// answer is an error that Redis has answered.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// unrecorded answers that the queue has a task without a record, whatever the script said.
type unrecorded struct{}

func (unrecorded) DialHook(next redis.DialHook) redis.DialHook { return next }

func (unrecorded) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return nil }
}

func (unrecorded) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, commands []redis.Cmder) error {
		commands[0].(*redis.StringCmd).SetVal("task")
		return nil
	}
}

// A task behind one without a record is taken at once. After NOSCRIPT asynq comes again at once, with the script.
func TestAPauseAfterAnErrorIsForErrorsOnlyAndEndsWithTheWaiter(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{}) // never connects
	rdb.AddHook(unrecorded{})
	w := newWaiter(rdb, "ns", "purchase")
	synctest.Test(t, func(t *testing.T) {
		w.closed = make(chan struct{}) // one of the simulated time
		paused := func(err error) time.Duration {
			began := time.Now()
			w.take(t.Context(), func(redis.Scripter) *redis.Cmd { return redis.NewCmdResult(nil, err) })
			return time.Since(began)
		}
		for err, want := range map[error]time.Duration{answer("NOSCRIPT No matching script."): 0, answer("LOADING"): errorBackoff, redis.Nil: 0} {
			if took := paused(err); took != want {
				t.Errorf("after %v a pause of %s", err, took)
			}
		}
		time.AfterFunc(errorBackoff/2, w.close)
		if took := paused(answer("LOADING")); took != errorBackoff/2 {
			t.Errorf("after the close the pause went on, %s", took)
		}
	})
}

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
