package ratelimit

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"triprize/internal/platform/batch"
)

const (
	checkBatch     = 256
	checksInFlight = 2
	checksPending  = 8192
)

// scripts is the Redis client of redis_rate, which runs one script per check. It sends the scripts of concurrent
// checks in one pipeline. If Redis has lost the script it answers NOSCRIPT, and redis_rate sends the whole script
// the same way.
type scripts struct {
	redis.UniversalClient // for the interface; checks do not use it

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
			Timeout:     time.Second, // then one pipeline probes
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		}),
	}
	s.checks = batch.New(batch.Options{Size: checkBatch, InFlight: checksInFlight, Pending: checksPending, Timeout: budget,
		Whole: func(error) bool { return true }}, s.run)
	return s
}

// suspended reports whether the breaker is open. That is cheaper than to queue a check that it rejects.
func (s *scripts) suspended() bool { return s.breaker.State() == gobreaker.StateOpen }

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
	if err != nil { // the command may still be running: do not touch it
		command = redis.NewCmd(ctx)
		command.SetErr(err)
	}
	return command
}

// run runs many commands in one round trip.
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
				return commands, nil // Redis is up; each caller gets the error of its own command
			}
		}
		return nil, err
	})
}
