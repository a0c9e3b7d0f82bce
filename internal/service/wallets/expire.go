package wallets

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/wallet"
)

// Expired is what a run of the sweep came to.
type Expired struct {
	Authorizations int
	Visited        []uuid.UUID // wallets that were looked at, whatever came of it
	PassedOver     int         // of these: somebody has them locked, or they are broken
}

// Expire gives back what wallets, but for those in except, hold for at most limit
// authorizations whose time is over. Wallets that somebody has locked are left for
// the next time. Any number of sweeps may run at once.
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
		return Expired{}, fmt.Errorf("wallets.Expire: %w", err)
	}
	return done, nil
}

func expire(ctx context.Context, tx pgx.Tx, due []uuid.UUID) (done Expired, err error) {
	book, err := wallet.Open(ctx, tx, wallet.Wanted{Wallets: due}, postgres.SkipLocked)
	if err != nil {
		return done, err
	}
	done.Visited = due
	for _, id := range due {
		n, err := book.ExpireDue(id)
		if err != nil { // a wallet that is busy, or broken, holds up no other
			done.PassedOver++
			continue
		}
		done.Authorizations += n
	}
	return done, book.Write(ctx, tx)
}
