package queue

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

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
