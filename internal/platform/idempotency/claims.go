package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// Claims is the workers' side: who works on which job.
type Claims struct {
	rdb        redis.UniversalClient
	namespace  string
	claimTTL   time.Duration
	settledTTL time.Duration
}

// NewClaims returns a Claims with the lifetimes of settings.
func NewClaims(rdb redis.UniversalClient, namespace string, settings config.Idempotency) *Claims {
	return &Claims{rdb: rdb, namespace: namespace, claimTTL: settings.ClaimTTL, settledTTL: settings.SettledTTL}
}

// Claim tries to mark every job as in progress with holder, in one round trip.
// It returns the jobs that somebody else is at work on. A job that Redis calls
// settled counts as claimed: only Postgres can say so, and will.
func (c *Claims) Claim(ctx context.Context, holder string, jobs []uuid.UUID) (busy []uuid.UUID, err error) {
	mine := string(InProgress) + " " + holder
	commands := make([]*redis.StatusCmd, len(jobs))
	_, err = c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, job := range jobs {
			commands[i] = pipe.SetArgs(ctx, jobKey(c.namespace, job), mine, redis.SetArgs{Mode: "NX", Get: true, TTL: c.claimTTL})
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil: a key was free, and is ours now
		return nil, err
	}
	prefix := string(InProgress) + " "
	for i, command := range commands {
		before := command.Val()
		if before != mine && len(before) > len(prefix) && before[:len(prefix)] == prefix {
			busy = append(busy, jobs[i])
		}
	}
	return busy, nil
}

// Refresh keeps claims from expiring while their holder is at work.
func (c *Claims) Refresh(ctx context.Context, jobs []uuid.UUID) error {
	_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, job := range jobs {
			pipe.PExpire(ctx, jobKey(c.namespace, job), c.claimTTL)
		}
		return nil
	})
	return err
}

// Settle records, inside a pipeline of the caller's, how jobs ended.
func (c *Claims) Settle(ctx context.Context, pipe redis.Pipeliner, job uuid.UUID, state State) {
	pipe.Set(ctx, jobKey(c.namespace, job), string(state), c.settledTTL)
}
