package recovery

import (
	"context"

	"github.com/google/uuid"
)

// expiredAuthorizations gives back what wallets hold for authorizations whose
// time is over. A wallet is met once in a run: one that somebody is at work on, or
// that is broken, stands in nobody's way and is left for the next run.
func (s *Sweeper) expiredAuthorizations(ctx context.Context) (Counts, error) {
	counts := Counts{"wallets": 0, "expired": 0, "passed_over": 0}
	var met []uuid.UUID
	err := s.batches(func(limit int) (int, error) {
		done, err := s.teller.Expire(ctx, met, limit)
		if err != nil {
			return 0, err
		}
		met = append(met, done.Met...)
		counts["wallets"] += len(done.Met)
		counts["expired"] += done.Authorizations
		counts["passed_over"] += done.PassedOver
		if len(done.Met) > 0 {
			return limit, nil // there may be more, of other wallets
		}
		return 0, nil
	})
	return counts, err
}
