package recovery

import "context"

// expiredAuthorizations gives back what wallets hold for authorizations whose
// time is over. Wallets that somebody is at work on are left for the next run.
func (s *Sweeper) expiredAuthorizations(ctx context.Context) (Counts, error) {
	counts := Counts{"expired": 0}
	err := s.batches(func(limit int) (int, error) {
		expired, err := s.teller.Expire(ctx, limit)
		counts["expired"] += expired
		return expired, err
	})
	return counts, err
}
