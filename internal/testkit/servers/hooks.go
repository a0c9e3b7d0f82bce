package servers

import (
	"cmp"
	"context"
	"regexp"

	"github.com/redis/go-redis/v9"
)

// Hook is a hook of a Redis client. It is given a command, or those of a pipeline, and sends them or does not.
type Hook func(ctx context.Context, cmds []redis.Cmder, send redis.ProcessPipelineHook) error

// DialHook implements redis.Hook.
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	send := func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) }
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, []redis.Cmder{cmd}, send) }
}

// ProcessPipelineHook implements redis.Hook.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// Before returns a Hook that sees each command before it is sent. With an error it is not.
func Before(see func(ctx context.Context, cmd redis.Cmder) error) Hook {
	return func(ctx context.Context, cmds []redis.Cmder, send redis.ProcessPipelineHook) error {
		for _, cmd := range cmds {
			if err := see(ctx, cmd); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return send(ctx, cmds)
	}
}

var hashTag = regexp.MustCompile(`\{.+?\}`)

// oneSlot is for all clients of tests. It refuses what a Redis Cluster would refuse: commands and scripts whose keys
// have no common hash tag. It knows the commands with several keys that we and asynq send.
func oneSlot(_ context.Context, cmd redis.Cmder) error {
	var keys []any
	switch args := cmd.Args(); cmd.Name() {
	case "eval", "evalsha":
		n, _ := args[2].(int)
		keys = args[3 : 3+n]
	case "del", "unlink", "exists", "mget":
		keys = args[1:]
	}
	slots := make(map[string]bool)
	for _, key := range keys {
		name, _ := key.(string)
		slots[cmp.Or(hashTag.FindString(name), name)] = true
	}
	if len(slots) > 1 && keys[len(keys)-1] != "asynq:queues" { // the poll of all queues, which package queue divides in a Cluster
		return redis.ErrCrossSlot
	}
	return nil
}
