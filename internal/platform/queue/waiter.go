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
	// longestWait bounds a wait for a bell. asynq counts the lease of a task, 30 s, from
	// before the wait.
	longestWait = 10 * time.Second
	// errorPause is a wait after an error of Redis. asynq has none (hibiken/asynq#1058).
	errorPause = 200 * time.Millisecond
	// lateWait is how much longer than longestWait a wait may take. One that took longer was
	// that of a process that stood still.
	lateWait = 5 * time.Second
	// emptyPause is how long asynq sleeps after it has found its queue empty, before it comes
	// to wait for a bell.
	emptyPause = time.Millisecond
)

// waiter is the Redis client of one kind's asynq server. It lets the server wait for the bell
// before it looks again into a queue that was empty, and answers for Redis that no delay is
// over yet. Everything else passes through, and never waits.
type waiter struct {
	ringer
	rdb        *redis.Client
	kind       string
	keys       []string      // of the script that takes a task
	longest    time.Duration // see longestWait
	now        func() time.Time
	empty      bool // only asynq's processor, one goroutine, uses it and the next
	unrecorded bool // the next task had no record after the last look
	closed     chan struct{}

	mu       sync.Mutex
	blocking *redis.Client // its one connection is for the wait
	shut     bool
	waits    int // counts them
	waiting  bool
	inVain   int // the wait during which a poll has already found a pending task

	delayed delayedTasks
}

func newWaiter(rdb *redis.Client, namespace, kind string) *waiter {
	w := &waiter{ringer: ringer{rdb, namespace}, rdb: rdb, kind: kind, longest: longestWait, now: time.Now, closed: make(chan struct{}), blocking: blockingClient(rdb)}
	for _, part := range []string{"pending", "paused", "active", "lease"} {
		w.keys = append(w.keys, asynqKey(namespace, kind, part))
	}
	return w
}

// blockingClient returns a client with one connection. Its commands fail at once when it is
// closed meanwhile.
func blockingClient(rdb *redis.Client) *redis.Client {
	options := *rdb.Options()
	options.PoolSize, options.MinIdleConns, options.MaxRetries, options.DialerRetries = 1, 0, -1, 1
	return redis.NewClient(&options)
}

// EvalSha runs a script of asynq.
func (w *waiter) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.EvalSha(ctx, sha, keys, args...) })
}

// Eval runs a script that Redis does not have yet.
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
		defer w.delayed.put()
	}
	return w.ringer.run(ctx, keys, eval)
}

// take runs the script that takes a task. When its last run found none, it first waits for
// the bell. After a wait that took too long the lease that asynq has counted may be over: asynq
// hears that there is no task, and comes again at once.
func (w *waiter) take(ctx context.Context, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	if w.empty {
		began := w.now().Round(0) // by the clock on the wall: the other one stands still with the machine
		w.wait(ctx)
		if w.now().Round(0).Sub(began) > w.longest+lateWait {
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
	w.empty = none && !w.more(ctx)
	if err != nil && !none && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		w.pause()
	}
	return cmd
}

// more tells whether to look again: the script says "none" also of a task without a record, which
// it takes away, and others stand behind it. One with a record has a ring of its own.
func (w *waiter) more(ctx context.Context) bool {
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

// wait returns when the bell has rung for this worker, when it is time to look anyway, or
// when the waiter is closed.
func (w *waiter) wait(ctx context.Context) {
	w.mu.Lock()
	client := w.blocking
	w.waits, w.waiting = w.waits+1, true
	w.mu.Unlock()
	err := client.BLPop(ctx, w.longest, bellKey(w.namespace, w.kind)).Err()
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
	case <-time.After(errorPause):
	case <-w.closed:
	}
}

// pending notes that a poll has found a pending task, and has rung for it. When the bell has
// not reached this worker until the next poll, its connection is dead: it gets a new one.
func (w *waiter) pending() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting && w.inVain == w.waits && !w.shut {
		_ = w.blocking.Close()
		w.blocking = blockingClient(w.rdb)
	}
	w.inVain = w.waits
}

// close ends the wait, and no further task is taken. A ring that comes at this moment is
// lost, which a poll notices.
func (w *waiter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shut {
		w.shut = true
		close(w.closed)
		_ = w.blocking.Close()
	}
}

// forward runs the script that moves tasks whose delay is over, if there can be any, and
// rings for each.
func (w *waiter) forward(ctx context.Context, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	if w.delayed.none(time.Now()) {
		return redis.NewCmdResult(int64(0), nil)
	}
	cmd := eval(w.UniversalClient)
	if n, _ := cmd.Int(); n > 0 {
		_, _ = w.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			ring(ctx, pipe, bellKey(w.namespace, w.kind), n)
			return nil
		})
	}
	return cmd
}

// mostRings bounds a bell: these are the rings that nobody waited for. A worker that finds
// one looks into the queue in vain.
const mostRings = 16

// ringer is a Redis client for asynq. A script that enqueues a task or gives one back also
// rings the bell of the kind, in the same round trip.
type ringer struct {
	redis.UniversalClient
	namespace string
}

// EvalSha runs a script of asynq.
func (r ringer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return r.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.EvalSha(ctx, sha, keys, args...) })
}

// Eval runs a script that Redis does not have yet.
func (r ringer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return r.run(ctx, keys, func(c redis.Scripter) *redis.Cmd { return c.Eval(ctx, script, keys, args...) })
}

// run rings also when the script has put nothing in: a ring too many costs one look.
func (r ringer) run(ctx context.Context, keys []string, eval func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	kind, ok := r.puts(keys)
	if !ok {
		return eval(r.UniversalClient)
	}
	var cmd *redis.Cmd
	_, _ = r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		cmd = eval(pipe)
		ring(ctx, pipe, bellKey(r.namespace, kind), 1)
		return nil
	})
	return cmd
}

// puts tells whether a script with these keys enqueues a task or gives one back, and its
// kind: their last or last but one key is the list. Enqueue: t:<task>, pending. Requeue:
// active, lease, pending, t:<task>.
func (r ringer) puts(keys []string) (kind string, ok bool) {
	for i, key := range keys {
		if kind, ok := cutKey(r.namespace, key, "pending"); ok {
			return kind, i > 0 && !forwards(r.namespace, keys)
		}
	}
	return "", false
}

// forwards tells whether a script with these keys moves tasks whose delay is over: scheduled
// or retry, pending.
func forwards(namespace string, keys []string) bool {
	if len(keys) != 2 {
		return false
	}
	_, scheduled := cutKey(namespace, keys[0], "scheduled")
	_, retry := cutKey(namespace, keys[0], "retry")
	return scheduled || retry
}

// ring wakes up to n workers of the kinds that wait, those that have waited longest.
func ring(ctx context.Context, c redis.Cmdable, bell string, n int) {
	rings := make([]any, min(n, mostRings))
	for i := range rings {
		rings[i] = ""
	}
	c.LPush(ctx, bell, rings...)
	c.LTrim(ctx, bell, 0, mostRings-1)
}

func bellKey(namespace, kind string) string { return namespace + ":bell:" + kind }

// asynqKey returns a key of asynq's for the queue of a kind.
func asynqKey(namespace, kind, part string) string {
	return "asynq:{" + Name(namespace, kind) + "}:" + part
}

// cutKey returns the kind that a key of asynq's belongs to, if it is that part of a queue.
func cutKey(namespace, key, part string) (kind string, ok bool) {
	if kind, ok = strings.CutPrefix(key, "asynq:{"+Name(namespace, "")); ok {
		kind, ok = strings.CutSuffix(kind, "}:"+part)
	}
	return kind, ok
}
