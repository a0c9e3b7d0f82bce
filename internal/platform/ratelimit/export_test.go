package ratelimit

import "time"

// Waiting returns how many checks wait for a pipeline.
func (l *Limiter) Waiting() int { return l.scripts.checks.Pending() }

// UseClock lets no time pass in this process but that of a clock.
func (l *Limiter) UseClock(now func() time.Time) { l.local.now = now }

// Known returns how many owners of shared limits this process knows.
func (l *Limiter) Known() int { return l.local.buckets.Len() }
