package wallets

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/wallet"
)

// Expired is the result of Expire.
type Expired struct {
	Authorizations int         // that were ended
	Visited        []uuid.UUID // wallets that were tried
	PassedOver     int         // of these: wallets that are locked or broken
}

// Expire finds at most limit authorizations that are over, in wallets that are not in
// except, and ends all that are over in those wallets. It skips wallets that another
// transaction has locked. Any number of calls may run at once.
func (e *Executor) Expire(ctx context.Context, except []uuid.UUID, limit int) (done Expired, err error) {
	due, err := wallet.FindDue(ctx, e.db, except, limit)
	if err != nil || len(due) == 0 {
		return Expired{}, err
	}
	err = postgres.InTx(ctx, e.db, func(tx pgx.Tx) error {
		done, err = expire(ctx, tx, due)
		return err
	})
	if err != nil {
		return Expired{}, fault.At(err, "wallets.Expire")
	}
	return done, nil
}

func expire(ctx context.Context, tx pgx.Tx, due []uuid.UUID) (done Expired, err error) {
	unit, err := wallet.Open(ctx, tx, wallet.Wanted{Wallets: due}, postgres.SkipLocked)
	if err != nil {
		return done, err
	}
	done.Visited = due
	for _, id := range due {
		n, err := unit.ExpireDue(id)
		if err != nil { // busy or broken: go on with the others
			done.PassedOver++
			continue
		}
		done.Authorizations += n
	}
	return done, unit.Write(ctx, tx)
}
