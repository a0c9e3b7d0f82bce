package recovery

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"triprize/internal/service/holds"
	"triprize/internal/store/inventory"
)

// expiredHolds ends holds that are over, with a short transaction for each campaign. A
// campaign that fails does not stop the others.
func (s *Sweeper) expiredHolds(ctx context.Context) (Counts, error) {
	counts := Counts{"campaigns": 0, "expired": 0, "freed": 0, "failed": 0}
	var failures []error
	broken := []uuid.UUID{} // campaigns that failed: not to be found again in this run
	err := s.batches(func(limit int) (int, error) {
		campaigns, err := inventory.CampaignsWithHoldsOver(ctx, s.db, broken, limit)
		if err != nil {
			return 0, err
		}
		counts["campaigns"] += len(campaigns)
		done, failed := 0, false
		for _, id := range campaigns {
			holds, positions, err := holds.Expire(ctx, s.db, id, limit)
			if err != nil {
				broken = append(broken, id)
				counts["failed"]++
				failed = true
				failures = append(failures, err)
				continue
			}
			done += holds
			counts["expired"] += holds
			counts["freed"] += positions
		}
		s.holds.Count(inventory.HoldsExpired, done)
		if failed { // holds of failed campaigns filled the batch: there may be more of others
			done = max(done, limit)
		}
		return done, ctx.Err()
	})
	return counts, errors.Join(append(failures, err)...)
}
