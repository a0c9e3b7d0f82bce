package console

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Sample is one point of the curves: its time, purchases and refusals a second, milliseconds to final (p99), backlog. Nil: not known.
type Sample [5]*float64

// Curves are the samples of the last hour, the oldest first. They are gone at a restart.
type Curves struct {
	mu      sync.Mutex
	samples []Sample
}

// Run takes a sample every ten seconds until ctx ends.
func (c *Curves) Run(ctx context.Context, read func(context.Context) Sample) {
	ticker := time.NewTicker(10 * time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		c.add(read(ctx))
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (c *Curves) add(s Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s[0] = new(float64(time.Now().Unix()))
	c.samples = append(c.samples[max(0, len(c.samples)-359):], s) // 360 are an hour
}

func (c *Curves) all() []Sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.samples)
}
