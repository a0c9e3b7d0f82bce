package wallet

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/sweep"
)

// ExpiredAuthorizations is the sweep that ends authorizations that are over. A run tries each wallet
// once: one that is locked or broken is left for the next run and does not delay the others.
func ExpiredAuthorizations(wallets *Executor) sweep.Sweep {
	return sweep.Sweep{Name: "expired-authorizations", Every: time.Minute, Counts: []string{"wallets", "expired", "passed_over"},
		Run: func(ctx context.Context, run sweep.Run) error {
			var visited []uuid.UUID
			return run.Batches(func(limit int) (int, error) {
				done, err := wallets.Expire(ctx, visited, limit)
				if err != nil {
					return 0, err
				}
				visited = append(visited, done.Visited...)
				run.Counts["wallets"] += len(done.Visited)
				run.Counts["expired"] += done.Authorizations
				run.Counts["passed_over"] += done.PassedOver
				if len(done.Visited) > 0 {
					return limit, nil // other wallets may have more
				}
				return 0, nil
			})
		}}
}
