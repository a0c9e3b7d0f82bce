package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Presence says in Redis that this worker is alive, and which tasks it holds.
// Every statement of it may fail: a worker that cannot be heard is taken for
// dead, its tasks are rung for again, and Postgres keeps the doubles apart.
type Presence struct {
	rdb       redis.UniversalClient
	namespace string
	worker    string
	every     time.Duration
	ttl       time.Duration
}

// NewPresence returns the Presence of a worker. It beats every interval; the
// worker counts as dead when nothing was heard for ttl.
func NewPresence(rdb redis.UniversalClient, namespace, worker string, every, ttl time.Duration) *Presence {
	return &Presence{rdb: rdb, namespace: namespace, worker: worker, every: every, ttl: ttl}
}

// Run beats until ctx ends, then says that the worker is gone.
func (p *Presence) Run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		if err := p.beat(ctx); err != nil && ctx.Err() == nil {
			logger.Warn("heartbeat not delivered", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.every)
			defer cancel()
			_ = p.rdb.Del(farewell, workerKey(p.namespace, p.worker)).Err()
			return
		}
	}
}

func (p *Presence) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.every)
	defer cancel()
	return p.rdb.Set(ctx, workerKey(p.namespace, p.worker), time.Now().UTC().Format(time.RFC3339), p.ttl).Err()
}

// Hold notes that this worker holds a task.
func (p *Presence) Hold(ctx context.Context, task uuid.UUID) error {
	return p.rdb.HSet(ctx, holdsKey(p.namespace), task.String(), p.worker).Err()
}

// Drop notes that this worker is done with a task.
func (p *Presence) Drop(ctx context.Context, task uuid.UUID) error {
	return p.rdb.HDel(ctx, holdsKey(p.namespace), task.String()).Err()
}

func workerKey(namespace, worker string) string { return namespace + ":worker:" + worker }
func holdsKey(namespace string) string          { return namespace + ":holds" }
