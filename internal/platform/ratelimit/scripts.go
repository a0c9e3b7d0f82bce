package ratelimit

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"triprize/internal/platform/batch"
)

const (
	checksAtOnce   = 256
	checksInFlight = 2
	checksWaiting  = 8192
)

// scripts is the Redis that redis_rate talks to. That runs one script for each
// check and waits for its answer; here those of concurrent checks go in one
// pipeline. A Redis that has forgotten the script answers NOSCRIPT, and
// redis_rate sends the whole of it, the same way.
type scripts struct {
	redis.UniversalClient // what redis_rate asks for beside and never uses in a check

	namespace string
	breaker   *gobreaker.CircuitBreaker[[]*redis.Cmd]
	checks    *batch.Coalescer[*redis.Cmd, *redis.Cmd]
}

func newScripts(rdb redis.UniversalClient, namespace string, budget time.Duration) *scripts {
	s := &scripts{
		UniversalClient: rdb,
		namespace:       namespace,
		breaker: gobreaker.NewCircuitBreaker[[]*redis.Cmd](gobreaker.Settings{
			Name:        "rate limits",
			Timeout:     time.Second, // then one pipeline tries again
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		}),
	}
	s.checks = batch.New(batch.Options{Size: checksAtOnce, InFlight: checksInFlight, Pending: checksWaiting, Timeout: budget,
		Whole: func(error) bool { return true }}, s.run)
	return s
}

// givenUp tells whether Redis is not asked for the moment. To go all the way to
// the breaker would cost nearly as much as a check.
func (s *scripts) givenUp() bool { return s.breaker.State() == gobreaker.StateOpen }

// EvalSha runs a script by its digest.
func (s *scripts) EvalSha(ctx context.Context, digest string, keys []string, args ...any) *redis.Cmd {
	return s.do(ctx, "evalsha", digest, keys, args)
}

// Eval runs a script.
func (s *scripts) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return s.do(ctx, "eval", script, keys, args)
}

func (s *scripts) do(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, key := range keys {
		all = append(all, s.namespace+":"+key)
	}
	command, err := s.checks.Do(ctx, redis.NewCmd(ctx, append(all, args...)...))
	if err != nil { // and perhaps under way: its command is not ours to touch
		command = redis.NewCmd(ctx)
		command.SetErr(err)
	}
	return command
}

// run runs many commands in one round trip; each keeps its own answer.
func (s *scripts) run(ctx context.Context, commands []*redis.Cmd) ([]*redis.Cmd, error) {
	return s.breaker.Execute(func() ([]*redis.Cmd, error) {
		_, err := s.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, command := range commands {
				_ = pipe.Process(ctx, command) // queued; it cannot fail
			}
			return nil
		})
		for _, command := range commands {
			if err := command.Err(); err == nil || redis.HasErrorPrefix(err, "NOSCRIPT") {
				return commands, nil // Redis is there; whose command failed sees it
			}
		}
		return nil, err
	})
}
