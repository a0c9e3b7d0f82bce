package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/idempotency"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// claims claims jobs in Redis and extends the claims of this worker. A claim keeps
// other workers from the same work. Without Redis two workers may do it, and
// Postgres lets only one commit.
type claims struct {
	*idempotency.Claims
	every  time.Duration
	logger *slog.Logger

	mu   sync.Mutex
	mine map[uuid.UUID]time.Time // since when
}

func newClaims(redis *idempotency.Claims, ttl time.Duration, logger *slog.Logger) *claims {
	return &claims{Claims: redis, every: ttl / 3, logger: logger, mine: make(map[uuid.UUID]time.Time)}
}

// take claims the jobs of a message and returns those to work on. leftOut tells
// that another message has a claim on some of them. The holder of a claim is the
// message, so a message that is delivered again keeps its claims.
func (c *claims) take(ctx context.Context, message outbox.Message) (jobs []job.Ref, leftOut bool) {
	ids := make([]uuid.UUID, len(message.Jobs))
	for i, j := range message.Jobs {
		ids[i] = j.ID
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	busy, err := c.Claim(ctx, message.ID.String(), ids)
	if err != nil {
		c.logger.Debug("jobs not claimed in Redis; Postgres decides", "message", message.ID, "error", err)
	}
	elsewhere := make(map[uuid.UUID]bool, len(busy))
	for _, id := range busy {
		elsewhere[id] = true
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range message.Jobs {
		if !elsewhere[j.ID] {
			jobs = append(jobs, j)
			c.mine[j.ID] = now
		}
	}
	return jobs, len(busy) > 0
}

// drop stops extending the claims on jobs, finalized or not.
func (c *claims) drop(jobs []job.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		delete(c.mine, j.ID)
	}
}

// run extends claims that last longer than usual.
func (c *claims) run(ctx context.Context) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if old := c.olderThan(c.every / 2); len(old) > 0 {
			refresh, cancel := context.WithTimeout(ctx, redisTimeout)
			_ = c.Refresh(refresh, old) // an expired claim costs double work, no more
			cancel()
		}
	}
}

func (c *claims) olderThan(age time.Duration) []uuid.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := time.Now().Add(-age)
	var old []uuid.UUID
	for id, since := range c.mine {
		if since.Before(limit) {
			old = append(old, id)
		}
	}
	return old
}
