package queue

import (
	"errors"
	"testing"
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
	w.now = func() time.Time { now = now.Add(longestWait + lateWait + 1); return now }
	ring(t.Context(), rdb, bellKey(settings.Redis.Namespace, "purchase"), 1)
	runs := 0
	eval := func(redis.Scripter) *redis.Cmd { runs++; return redis.NewCmdResult("task", nil) }
	if cmd := w.take(t.Context(), eval); runs != 0 || !errors.Is(cmd.Err(), redis.Nil) {
		t.Errorf("%d tasks were taken: %v", runs, cmd)
	}
	if cmd := w.take(t.Context(), eval); runs != 1 || cmd.Err() != nil {
		t.Errorf("%d tasks were taken with a new lease: %v", runs, cmd)
	}
}
