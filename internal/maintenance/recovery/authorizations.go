package recovery

import (
	"context"

	"github.com/google/uuid"
)

// expiredAuthorizations ends authorizations that are over. A run tries each wallet once:
// one that is locked or broken is left for the next run and does not delay the others.
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
			return limit, nil // other wallets may have more
		}
		return 0, nil
	})
	return counts, err
}
