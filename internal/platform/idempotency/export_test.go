package idempotency

// Waiting returns how many look-ups wait for a round trip.
func (s *Requests) Waiting() int { return s.finds.Pending() }
