package servers

import (
	"context"
	"strconv"
	"strings"

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
		if crosses(cmd) {
			cmd.SetErr(redis.ErrCrossSlot)
			return redis.ErrCrossSlot
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (oneSlot) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if crosses(cmd) {
				cmd.SetErr(redis.ErrCrossSlot)
				return redis.ErrCrossSlot
			}
		}
		return next(ctx, cmds)
	}
}

// crosses reports whether the keys of a command differ in what decides their slot.
func crosses(cmd redis.Cmder) bool {
	args := make([]string, len(cmd.Args()))
	for i, arg := range cmd.Args() {
		switch arg := arg.(type) {
		case string:
			args[i] = arg
		case int:
			args[i] = strconv.Itoa(arg)
		}
	}
	var keys []string
	switch cmd.Name() {
	case "eval", "evalsha":
		n, _ := strconv.Atoi(args[2])
		keys = args[3 : 3+n]
	case "del", "unlink", "exists", "touch", "mget", "sinter", "sunion", "sdiff":
		keys = args[1:]
	case "blpop", "brpop":
		keys = args[1 : len(args)-1]
	case "rename", "renamenx", "copy", "lmove", "rpoplpush", "smove":
		keys = args[1:3]
	case "mset", "msetnx":
		for i := 1; i < len(args); i += 2 {
			keys = append(keys, args[i])
		}
	}
	if len(keys) > 0 && keys[len(keys)-1] == "asynq:queues" { // the poll of all queues, which package queue divides in a Cluster
		return false
	}
	for _, key := range keys {
		if tag(key) != tag(keys[0]) {
			return true
		}
	}
	return false
}

// tag returns the part of a key that decides its slot.
func tag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if inside, _, ok := strings.Cut(after, "}"); ok && inside != "" {
			return inside
		}
	}
	return key
}
