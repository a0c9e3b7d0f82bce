package wallet_test

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// disturbed begins transactions of which the first few are disturbed: something
// changes, without the wallet's lock being asked for, between what a batch reads
// and what it writes.
type disturbed struct {
	*pgxpool.Pool
	times int
	sql   string
	id    uuid.UUID
}

// Begin implements postgres.Beginner.
func (d *disturbed) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.Pool.Begin(ctx)
	if d.times--; d.times < 0 {
		return tx, err
	}
	return &disturbedTx{Tx: tx, by: d}, err
}

// disturbedTx disturbs before its third batch, which writes; the first claims keys
// and the second reads.
type disturbedTx struct {
	pgx.Tx
	by      *disturbed
	batches int
}

// SendBatch implements pgx.Tx.
func (t *disturbedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.batches++; t.batches == 3 {
		_, _ = t.Exec(ctx, t.by.sql, t.by.id)
	}
	return t.Tx.SendBatch(ctx, b)
}
