package recovery

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/store/purchase"
)

// expiredReservations frees positions whose payment did not come in time, with a short
// transaction for each purchase. A purchase that fails does not stop the others.
func (s *Sweeper) expiredReservations(ctx context.Context) (Counts, error) {
	counts := Counts{"found": 0, "expired": 0, "failed": 0}
	var failures []error
	tried := make(map[uuid.UUID]bool) // purchases that failed are found again
	err := s.batches(func(limit int) (int, error) {
		found, err := purchase.FindExpired(ctx, s.db, limit+len(tried))
		if err != nil {
			return 0, err
		}
		var done int
		var settled []uuid.UUID
		for _, e := range found {
			if tried[e.ID] {
				continue
			}
			tried[e.ID] = true
			done++
			counts["found"]++
			outcome, expired, err := s.seller.Expire(ctx, e)
			if err != nil {
				counts["failed"]++
				failures = append(failures, err)
			} else if expired {
				counts["expired"]++
				settled = append(settled, outcome.ID)
			}
		}
		s.announce(ctx, settled)
		return done, ctx.Err()
	})
	return counts, errors.Join(append(failures, err)...)
}
