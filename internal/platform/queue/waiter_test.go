package queue

import (
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
	settings := servers.Patient(servers.RedisSettings(t))
	rdb := servers.Redis(t, settings)
	w := newWaiter(rdb, settings.Redis.Namespace, "purchase")
	t.Cleanup(w.close)
	w.empty = true
	now := time.Now()
	w.now = func() time.Time { now = now.Add(maxWait + waitGrace + 1); return now }
	wake(t.Context(), rdb, wakeupKey(settings.Redis.Namespace, "purchase"))
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

// After NOSCRIPT asynq comes again at once, with the script.
func TestAPauseAfterAnErrorIsForErrorsOnlyAndEndsWithTheWaiter(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{}) // never connects
	w := newWaiter(rdb, "ns", "purchase")
	synctest.Test(t, func(t *testing.T) {
		w.closed = make(chan struct{}) // one of the simulated time
		paused := func(err error) time.Duration {
			began := time.Now()
			w.empty = false
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
