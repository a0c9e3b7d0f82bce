package sale_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// disturbed begins transactions in which something is changed, without the
// campaign's lock being asked for, between what a batch reads and what it writes.
type disturbed struct {
	postgres.Beginner
	disturb func(tx pgx.Tx) error
}

// Begin implements postgres.Beginner.
func (d disturbed) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.Beginner.Begin(ctx)
	return &disturbedTx{Tx: tx, disturb: d.disturb}, err
}

// disturbedTx disturbs before its third batch, which writes: the first reads,
// the second looks for free positions.
type disturbedTx struct {
	pgx.Tx
	disturb func(tx pgx.Tx) error
	batches int
}

// SendBatch implements pgx.Tx.
func (t *disturbedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.batches++; t.batches == 3 {
		if err := t.disturb(t.Tx); err != nil {
			panic(err)
		}
	}
	return t.Tx.SendBatch(ctx, b)
}
