package wallet

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// ExpiredAuthorizations is the sweep that ends authorizations that are over. A run tries each wallet
// once: one that is locked or broken is left for the next run and does not delay the others.
func ExpiredAuthorizations(db postgres.Pool) sweep.Sweep {
	return sweep.Sweep{Name: "expired-authorizations", Every: time.Minute, Counts: []string{"wallets", "expired", "passed_over"},
		Run: func(ctx context.Context, run sweep.Run) error {
			var visited []uuid.UUID
			return run.Batches(func(limit int) (int, error) {
				done, err := expire(ctx, db, visited, limit)
				if err != nil || len(done.Visited) == 0 {
					return 0, err
				}
				visited = append(visited, done.Visited...)
				run.Counts["wallets"] += len(done.Visited)
				run.Counts["expired"] += done.Authorizations
				run.Counts["passed_over"] += done.PassedOver
				return limit, nil // other wallets may have more
			})
		}}
}

// expiry is what expire has done.
type expiry struct {
	Authorizations int         // that were ended
	Visited        []uuid.UUID // wallets that were tried
	PassedOver     int         // of these: skipped, because they are locked or broken
}

// expire finds at most limit authorizations that are over, the oldest first, in wallets that are not in
// except, and ends all that are over in those wallets. It skips wallets that another
// transaction has locked. Any number of calls may run at once.
func expire(ctx context.Context, db postgres.Pool, except []uuid.UUID, limit int) (done expiry, err error) {
	due, err := postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		SELECT wallet_id FROM (
			SELECT wallet_id, expires_at FROM authorizations
			WHERE state = 'active' AND expires_at <= (SELECT clock_timestamp()) AND wallet_id <> ALL(coalesce($2::uuid[], '{}'))
			ORDER BY expires_at LIMIT $1) d
		GROUP BY wallet_id ORDER BY min(expires_at)`, limit, except)
	if err != nil || len(due) == 0 {
		return expiry{}, fault.At(err, "wallet.expire")
	}
	done.Visited = due
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		unit, err := Open(ctx, tx, ReadSet{Wallets: due}, postgres.SkipLocked)
		if err != nil {
			return err
		}
		for _, id := range due {
			a, err := unit.account(id)
			if err != nil { // busy or broken: go on with the others
				done.PassedOver++
				continue
			}
			done.Authorizations += unit.expireDue(a)
		}
		return unit.Write(ctx, tx)
	})
	return done, fault.At(err, "wallet.expire")
}
