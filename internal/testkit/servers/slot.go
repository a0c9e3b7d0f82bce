package servers

import (
	"cmp"
	"context"
	"regexp"

	"github.com/redis/go-redis/v9"
)

// oneSlot is the hook of all clients of tests. It refuses what a Redis Cluster would refuse: commands and scripts whose
// keys have no common hash tag.
type oneSlot struct{}

// DialHook implements redis.Hook.
func (oneSlot) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (oneSlot) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := refuse(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (oneSlot) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := refuse(cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// refuse returns an error if the keys of a command differ in what decides their slot. It knows the commands with
// several keys that we and asynq send.
func refuse(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		var keys []any
		switch args := cmd.Args(); cmd.Name() {
		case "eval", "evalsha":
			n, _ := args[2].(int)
			keys = args[3 : 3+n]
		case "del", "unlink", "exists", "mget":
			keys = args[1:]
		}
		if len(keys) > 0 && keys[len(keys)-1] == "asynq:queues" { // the poll of all queues, which package queue divides in a Cluster
			continue
		}
		for _, key := range keys {
			if slot(key) != slot(keys[0]) {
				cmd.SetErr(redis.ErrCrossSlot)
				return redis.ErrCrossSlot
			}
		}
	}
	return nil
}

var hashTag = regexp.MustCompile(`\{.+?\}`)

// slot returns the part of a key that decides its slot.
func slot(key any) string {
	name, _ := key.(string)
	return cmp.Or(hashTag.FindString(name), name)
}
