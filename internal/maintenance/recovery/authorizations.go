package recovery

import (
	"context"

	"github.com/google/uuid"
)

// expiredAuthorizations gives back what wallets hold for authorizations whose
// time is over. A run looks at each wallet once: one that somebody is at work on, or
// that is broken, is left for the next run and holds up no other.
func (s *Sweeper) expiredAuthorizations(ctx context.Context) (Counts, error) {
	counts := Counts{"wallets": 0, "expired": 0, "passed_over": 0}
	var visited []uuid.UUID
	err := s.batches(func(limit int) (int, error) {
		done, err := s.wallets.Expire(ctx, visited, limit)
		if err != nil {
			return 0, err
		}
		visited = append(visited, done.Visited...)
		counts["wallets"] += len(done.Visited)
		counts["expired"] += done.Authorizations
		counts["passed_over"] += done.PassedOver
		if len(done.Visited) > 0 {
			return limit, nil // there may be more, of other wallets
		}
		return 0, nil
	})
	return counts, err
}
