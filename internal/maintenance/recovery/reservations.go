package recovery

import (
	"context"

	"triprize/internal/service/sale"
)

// expiredReservations gives payments up whose deadline is over and that nobody looks at.
// From then on they go their own way: the provider is asked, and its answer decides what
// becomes of their positions.
func (s *Sweeper) expiredReservations(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "expired": 0}
	err := s.batches(func(limit int) (int, error) {
		n, err := sale.ExpireReservations(ctx, s.db, limit)
		counts["found"] += n
		counts["expired"] += n
		return n, err
	})
	return counts, err
}
