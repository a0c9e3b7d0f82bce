package queue

import (
	"context"
	"slices"
	"time"
)

// ErrorBackoff is the wait after an error of Redis.
const ErrorBackoff = errorBackoff

// WakeupKey is the key of the wakeups of a kind.
func WakeupKey(namespace, kind string) string { return wakeupKey(namespace, kind) }

// Timing lets a server that is not started poll and look into empty queues at other times.
func (s *Server) Timing(poll, wait time.Duration) *Server {
	s.pollEvery = poll
	for _, one := range s.kinds {
		one.waiter.maxWait = wait
	}
	return s
}

// Poll polls once, as if nobody had polled before.
func (s *Server) Poll(ctx context.Context) {
	all := s.namespace + ":polled"
	for _, one := range s.kinds {
		s.rdb.Del(ctx, s.namespace+":polled:{"+Name(s.namespace, one.kind)+"}") // in a Cluster
		all += ":" + one.kind
	}
	s.rdb.Del(ctx, all+":{asynq:queues}")
	s.pollOnce(ctx)
}

// Waits tells whether the server waits for wakeups of all its kinds.
func (s *Server) Waits() bool {
	return !slices.ContainsFunc(s.kinds, func(one consumer) bool {
		connections := one.waiter.blocking.PoolStats()
		return connections.TotalConns == connections.IdleConns
	})
}

// Beat sends one heartbeat.
func (h *Heartbeat) Beat(ctx context.Context) error { return h.beat(ctx) }

// PollNext polls once, unless another has polled a moment ago.
func (s *Server) PollNext(ctx context.Context) { s.pollOnce(ctx) }
