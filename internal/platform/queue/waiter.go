package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxWait bounds a wait for a wakeup. asynq counts the lease of a task, 30 s, from before the wait.
	maxWait = 10 * time.Second
	// errorBackoff is the pause after a Redis error. asynq has none (hibiken/asynq#1058).
	errorBackoff = 200 * time.Millisecond
	// waitGrace is how much longer than maxWait a wait may take. If it took longer, the process was frozen.
	waitGrace = 5 * time.Second
	// emptySleep is how long asynq sleeps after an empty queue, before it waits for a wakeup.
	emptySleep = time.Millisecond
)

// waiter is the Redis client of one kind's asynq server. After an empty queue it blocks until a wakeup
// before the next take, and it skips forwarding while no delay is over. All other commands pass through.
type waiter struct {
	notifier
	rdb        *redis.Client
	kind       string
	keys       []string // of the script that takes a task
	maxWait    time.Duration
	now        func() time.Time
	empty      bool // only asynq's processor, one goroutine, uses it and the next
	unrecorded bool // the next task had no record after the last take
	closed     chan struct{}

	mu         sync.Mutex
	blocking   *redis.Client // its single connection waits for wakeups
	isClosed   bool
	waits      int // their number so far
	waiting    bool
	missedWait int // the wait during which a poll already found a pending task

	delayed delayedTasks
}

func newWaiter(rdb *redis.Client, namespace, kind string) *waiter {
	w := &waiter{notifier: notifier{rdb, namespace}, rdb: rdb, kind: kind, maxWait: maxWait, now: time.Now, closed: make(chan struct{}), blocking: blockingClient(rdb)}
	for _, part := range []string{"pending", "paused", "active", "lease"} {
		w.keys = append(w.keys, asynqKey(namespace, kind, part))
	}
	return w
}

// blockingClient returns a client with one connection. Close makes its running command fail at once.
func blockingClient(rdb *redis.Client) *redis.Client {
	options := *rdb.Options()
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
	switch {
	case slices.Equal(keys, w.keys):
		return w.take(ctx, eval)
	case forwards(w.namespace, keys):
		return w.forward(ctx, eval)
	case slices.Contains(keys, asynqKey(w.namespace, w.kind, "retry")):
		defer w.delayed.noteDelayed()
	}
	return w.notifier.run(ctx, keys, eval)
}

// take runs the script that takes a task. If its last run found none, it first waits for a wakeup.
// After too long a wait the lease that asynq counts may have expired: take then reports no task, and
// asynq retries at once.
func (w *waiter) take(ctx context.Context, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	if w.empty {
		began := w.now().Round(0) // wall clock: the monotonic clock stops while the machine sleeps
		w.wait(ctx)
		if w.now().Round(0).Sub(began) > w.maxWait+waitGrace {
			w.empty = false
			return redis.NewCmdResult(nil, redis.Nil)
		}
	}
	select {
	case <-w.closed:
		return redis.NewCmdResult(nil, redis.Nil)
	default:
	}
	cmd := eval(w.UniversalClient)
	err := cmd.Err()
	none := errors.Is(err, redis.Nil)
	w.empty = none && !w.hasMore(ctx)
	if err != nil && !none && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		w.pause()
	}
	return cmd
}

// hasMore reports whether to take again at once. The script reports no task also after it removed one
// without a record, although others follow. Those with a record have a wakeup of their own.
func (w *waiter) hasMore(ctx context.Context) bool {
	var next *redis.StringCmd
	var paused *redis.IntCmd
	_, err := w.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		next, paused = pipe.LIndex(ctx, w.keys[0], -1), pipe.Exists(ctx, w.keys[1])
		return nil
	})
	before := w.unrecorded
	w.unrecorded = err == nil && paused.Val() == 0 && w.rdb.Exists(ctx, asynqKey(w.namespace, w.kind, "t:"+next.Val())).Val() == 0
	return w.unrecorded || before && err == nil && paused.Val() == 0
}

// wait blocks until a wakeup, maxWait, or close.
func (w *waiter) wait(ctx context.Context) {
	w.mu.Lock()
	client := w.blocking
	w.waits, w.waiting = w.waits+1, true
	w.mu.Unlock()
	err := client.BLPop(ctx, w.maxWait, wakeupKey(w.namespace, w.kind)).Err()
	w.mu.Lock()
	cut := client != w.blocking
	w.waiting = false
	w.mu.Unlock()
	if err != nil && !errors.Is(err, redis.Nil) && !cut {
		w.pause()
	}
}

func (w *waiter) pause() {
	select {
	case <-time.After(errorBackoff):
	case <-w.closed:
	}
}

// notePending records that a poll found a pending task and pushed a wakeup. If this worker has not
// received it by the next poll, its connection is dead and is replaced.
func (w *waiter) notePending() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting && w.missedWait == w.waits && !w.isClosed {
		_ = w.blocking.Close()
		w.blocking = blockingClient(w.rdb)
	}
	w.missedWait = w.waits
}

// close ends the wait; no further task is taken. A wakeup that arrives now is lost until the next poll.
func (w *waiter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isClosed {
		w.isClosed = true
		close(w.closed)
		_ = w.blocking.Close()
	}
}

// forward runs asynq's script that enqueues tasks whose delay is over, unless there are none, and pushes a wakeup for each.
func (w *waiter) forward(ctx context.Context, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	if w.delayed.noneDue(time.Now()) {
		return redis.NewCmdResult(int64(0), nil)
	}
	cmd := eval(w.UniversalClient)
	if n, _ := cmd.Int(); n > 0 {
		_, _ = w.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			wake(ctx, pipe, wakeupKey(w.namespace, w.kind), n)
			return nil
		})
	}
	return cmd
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
		wake(ctx, pipe, wakeupKey(r.namespace, kind), 1)
		return nil
	})
	return cmd
}

// enqueues reports whether a script with these keys enqueues or requeues a task, and of which kind.
// Enqueue: t:<task>, pending. Requeue: active, lease, pending, t:<task>.
func (r notifier) enqueues(keys []string) (kind string, ok bool) {
	for i, key := range keys {
		if kind, ok := cutKey(r.namespace, key, "pending"); ok {
			return kind, i > 0 && !forwards(r.namespace, keys)
		}
	}
	return "", false
}

// forwards reports whether a script with these keys enqueues tasks whose delay is over: scheduled or retry, pending.
func forwards(namespace string, keys []string) bool {
	if len(keys) != 2 {
		return false
	}
	_, scheduled := cutKey(namespace, keys[0], "scheduled")
	_, retry := cutKey(namespace, keys[0], "retry")
	return scheduled || retry
}

// wake wakes up to n workers, those that have waited longest.
func wake(ctx context.Context, c redis.Cmdable, key string, n int) {
	wakeups := make([]any, min(n, maxWakeups))
	for i := range wakeups {
		wakeups[i] = ""
	}
	c.LPush(ctx, key, wakeups...)
	c.LTrim(ctx, key, 0, maxWakeups-1)
}

func wakeupKey(namespace, kind string) string { return namespace + ":wakeup:" + kind }

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
