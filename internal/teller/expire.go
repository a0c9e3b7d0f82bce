package teller

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/postgres"
	"triprize/internal/wallet"
)

// Expire gives back what wallets hold for at most limit authorizations whose
// time is over, and returns how many these were. Wallets that somebody has locked
// are left for the next time. Any number of sweeps may run at once.
func (t *Teller) Expire(ctx context.Context, limit int) (expired int, err error) {
	due, err := wallet.FindDue(ctx, t.db, limit)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	err = postgres.InTx(ctx, t.db, func(tx pgx.Tx) error {
		expired, err = expire(ctx, tx, due)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("teller.Expire: %w", err)
	}
	return expired, nil
}

func expire(ctx context.Context, tx pgx.Tx, due []uuid.UUID) (expired int, err error) {
	book, err := wallet.Open(ctx, tx, wallet.Wanted{Wallets: due}, false)
	if err != nil {
		return 0, err
	}
	for _, id := range due {
		n, err := book.ExpireDue(id)
		if err == nil { // a wallet that is busy, or broken, holds up no other
			expired += n
		}
	}
	return expired, book.Write(ctx, tx)
}
