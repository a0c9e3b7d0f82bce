package ratelimit

// Waiting returns how many checks wait for a pipeline.
func (l *Limiter) Waiting() int { return l.scripts.checks.Pending() }
