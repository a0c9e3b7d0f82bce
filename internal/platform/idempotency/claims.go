package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// Claims is what workers use: it marks the jobs that they work on.
type Claims struct {
	rdb       redis.UniversalClient
	namespace string
	claimTTL  time.Duration
}

// NewClaims returns a Claims with the lifetimes of settings.
func NewClaims(rdb redis.UniversalClient, namespace string, settings config.Idempotency) *Claims {
	return &Claims{rdb: rdb, namespace: namespace, claimTTL: settings.ClaimTTL}
}

// Claim tries to mark every job as in progress with holder, in one round trip.
// It returns the jobs that another holder works on.
func (c *Claims) Claim(ctx context.Context, holder string, jobs []uuid.UUID) (busy []uuid.UUID, err error) {
	mine := string(InProgress) + " " + holder
	commands := make([]*redis.StatusCmd, len(jobs))
	_, err = c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, job := range jobs {
			commands[i] = pipe.SetArgs(ctx, jobKey(c.namespace, job), mine, redis.SetArgs{Mode: "NX", Get: true, TTL: c.claimTTL})
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") { // Nil: a job was free, and is claimed now
		return nil, err
	}
	prefix := string(InProgress) + " "
	for i, command := range commands {
		before := command.Val()
		if before != mine && len(before) > len(prefix) && before[:len(prefix)] == prefix {
			busy = append(busy, jobs[i])
		}
	}
	if len(busy) > 0 { // one that has no end is nobody's
		_, _ = c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, job := range busy {
				pipe.ExpireNX(ctx, jobKey(c.namespace, job), c.claimTTL)
			}
			return nil
		})
	}
	return busy, nil
}

// Release gives claims back, for another holder or because the jobs are final, in one
// command: rdb may be a pipeline.
func (c *Claims) Release(ctx context.Context, rdb redis.Cmdable, jobs []uuid.UUID) error {
	if len(jobs) == 0 {
		return nil
	}
	keys := make([]string, len(jobs))
	for i, job := range jobs {
		keys[i] = jobKey(c.namespace, job)
	}
	return rdb.Unlink(ctx, keys...).Err()
}

// Refresh extends claims, so that they do not expire during the work.
func (c *Claims) Refresh(ctx context.Context, jobs []uuid.UUID) error {
	_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, job := range jobs {
			pipe.PExpire(ctx, jobKey(c.namespace, job), c.claimTTL)
		}
		return nil
	})
	return err
}
