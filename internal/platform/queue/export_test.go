package queue

import (
	"context"
	"time"
)

// Age lets the time pass after which a client tells Redis anew which queues exist.
func (c *Client) Age() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = c.renewed.Add(-registerEvery)
}

// ErrorBackoff is the wait after an error of Redis.
const ErrorBackoff = errorBackoff

// Timing lets a server that is not started poll and look into empty queues at other times.
func (s *Server) Timing(poll, wait time.Duration) *Server {
	s.pollEvery = poll
	for _, one := range s.kinds {
		one.waiter.maxWait = wait
	}
	return s
}

// Poll polls once.
func (s *Server) Poll(ctx context.Context) { s.pollOnce(ctx) }

// Waits tells whether the server waits for the bells of all its kinds.
func (s *Server) Waits() bool {
	for _, one := range s.kinds {
		one.waiter.mu.Lock()
		waits := one.waiter.waiting
		one.waiter.mu.Unlock()
		if !waits {
			return false
		}
	}
	return true
}
