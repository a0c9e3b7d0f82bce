package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxWait bounds a wait for a wakeup. asynq counts the lease of a task, 30 s, from before the wait.
	maxWait = 5 * time.Second
	// errorBackoff is the pause after a Redis error. asynq has none (hibiken/asynq#1058).
	errorBackoff = 200 * time.Millisecond
	// answerGrace is how much longer than maxWait Redis may take to answer. Then the connection is dead and is replaced.
	answerGrace = time.Second
	// waitGrace is how much longer than maxWait a wait may take. If it took longer, the process was frozen.
	waitGrace = 5 * time.Second
	// emptySleep is how long asynq sleeps after an empty queue, before it waits for a wakeup.
	emptySleep = time.Millisecond
)

// waiter is the Redis client of one kind's asynq server. After an empty queue it blocks until a wakeup
// before the next take. All other commands pass through.
type waiter struct {
	notifier
	kind     string
	keys     []string // of the script that takes a task
	maxWait  time.Duration
	now      func() time.Time
	empty    bool                  // only asynq's processor, one goroutine, uses it
	paused   atomic.Pointer[pause] // nil: not paused
	blocking redis.UniversalClient // its single connection waits for wakeups; in a Cluster, one to the node of the queue
	closed   chan struct{}
	close    func() // ends the wait; no further task is taken. A wakeup that arrives now is lost until the next poll
}

// pause is closed when the pause of a Server ends.
type pause chan struct{}

func newWaiter(rdb redis.UniversalClient, namespace, kind string) *waiter {
	w := &waiter{notifier: notifier{rdb, namespace}, kind: kind, maxWait: maxWait, now: time.Now, closed: make(chan struct{}), blocking: alone(rdb)}
	w.close = sync.OnceFunc(func() {
		close(w.closed)
		_ = w.blocking.Close() // its running command fails at once
	})
	for _, part := range []string{"pending", "paused", "active", "lease"} {
		w.keys = append(w.keys, asynqKey(namespace, kind, part))
	}
	return w
}

// alone returns a client of the same servers with a connection of its own. It retries nothing: the waiter pauses after
// an error.
func alone(rdb redis.UniversalClient) redis.UniversalClient {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		options := *cluster.Options()
		options.PoolSize, options.MinIdleConns, options.MaxRedirects, options.DialerRetries = 1, 0, -1, 1
		return redis.NewClusterClient(&options)
	}
	options := *rdb.(*redis.Client).Options() //nolint:forcetypeassert // there is no third kind. With Sentinel, the dialer asks it for the primary
	options.PoolSize, options.MinIdleConns, options.MaxRetries, options.DialerRetries = 1, 0, -1, 1
	return redis.NewClient(&options)
}

// EvalSha runs a script of asynq.
func (w *waiter) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.EvalSha(ctx, sha, keys, args...) })
}

// Eval runs a script that Redis has not cached yet.
func (w *waiter) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return w.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.Eval(ctx, script, keys, args...) })
}

func (w *waiter) run(ctx context.Context, keys []string, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	if slices.Equal(keys, w.keys) {
		return w.take(ctx, eval)
	}
	return w.notifier.run(ctx, keys, eval)
}

// take runs the script that takes a task. If its last run found none, it first waits for a wakeup.
// After too long a wait the lease that asynq counts may have expired: take then reports no task, and
// asynq retries at once. During a pause of the server it takes neither a task nor a wakeup.
func (w *waiter) take(ctx context.Context, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	if w.empty && w.paused.Load() == nil {
		began := w.now().Round(0) // wall clock: the monotonic clock stops while the machine sleeps
		w.wait(ctx)
		if w.now().Round(0).Sub(began) > w.maxWait+waitGrace {
			w.empty = false
			return redis.NewCmdResult(nil, redis.Nil)
		}
	}
	if paused := w.paused.Load(); paused != nil {
		select {
		case <-*paused:
		case <-w.closed:
		}
		w.empty = false
		return redis.NewCmdResult(nil, redis.Nil) // asynq counts the lease from before the pause
	}
	select {
	case <-w.closed:
		return redis.NewCmdResult(nil, redis.Nil)
	default:
	}
	cmd := eval(w.UniversalClient)
	err := cmd.Err()
	w.empty = errors.Is(err, redis.Nil)
	if err != nil && !w.empty && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		w.pause()
	}
	return cmd
}

// wait blocks until a wakeup, maxWait, or close. A wakeup that arrives during a pause goes to another worker.
func (w *waiter) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.maxWait+answerGrace)
	defer cancel()
	err := w.blocking.BLPop(ctx, w.maxWait, wakeupKey(w.namespace, w.kind)).Err()
	switch {
	case err == nil && w.paused.Load() != nil:
		wake(ctx, w.UniversalClient, wakeupKey(w.namespace, w.kind))
	case err != nil && !errors.Is(err, redis.Nil):
		w.pause()
	}
}

func (w *waiter) pause() {
	select {
	case <-time.After(errorBackoff):
	case <-w.closed:
	}
}

// maxWakeups bounds a wakeup list. A leftover wakeup costs one take from an empty queue.
const maxWakeups = 16

// notifier is a Redis client for asynq. With a script that enqueues or requeues a task it pushes a
// wakeup for the kind, in the same round trip.
type notifier struct {
	redis.UniversalClient
	namespace string
}

// EvalSha runs a script of asynq.
func (r notifier) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return r.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.EvalSha(ctx, sha, keys, args...) })
}

// Eval runs a script that Redis has not cached yet.
func (r notifier) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return r.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.Eval(ctx, script, keys, args...) })
}

// run pushes a wakeup even if the script enqueues nothing: a spurious one costs one take.
func (r notifier) run(ctx context.Context, keys []string, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	kind, ok := r.enqueues(keys)
	if !ok {
		return eval(r.UniversalClient)
	}
	var cmd *redis.Cmd
	_, _ = r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		cmd = eval(pipe)
		wake(ctx, pipe, wakeupKey(r.namespace, kind))
		return nil
	})
	return cmd
}

// enqueues reports whether a script with these keys enqueues or requeues a task, and of which kind.
// Enqueue: t:<task>, pending. Requeue: active, lease, pending, t:<task>.
func (r notifier) enqueues(keys []string) (kind string, ok bool) {
	for i, key := range keys {
		if kind, ok := cutKey(r.namespace, key, "pending"); ok {
			return kind, i > 0
		}
	}
	return "", false
}

// wake wakes the worker that has waited longest.
func wake(ctx context.Context, c redis.Cmdable, key string) {
	c.LPush(ctx, key, "")
	c.LTrim(ctx, key, 0, maxWakeups-1)
}

// wakeupKey has the hash tag of the queue: a wakeup must not overtake its task.
func wakeupKey(namespace, kind string) string {
	return namespace + ":wakeup:{" + Name(namespace, kind) + "}"
}

// asynqKey returns asynq's key for a part of the queue of a kind.
func asynqKey(namespace, kind, part string) string {
	return "asynq:{" + Name(namespace, kind) + "}:" + part
}

// cutKey returns the kind in a key of asynq, if it is this part of a queue.
func cutKey(namespace, key, part string) (kind string, ok bool) {
	if kind, ok = strings.CutPrefix(key, "asynq:{"+Name(namespace, "")); ok {
		kind, ok = strings.CutSuffix(kind, "}:"+part)
	}
	return kind, ok
}
