package refund

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
)

// OutOfBand is a refund of one of our payments that somebody else has made at the provider,
// or that was made there although ours was resolved by hand.
type OutOfBand struct {
	ProviderID string // re_… of the provider
	PurchaseID uuid.UUID
	Amount     money.Amount
	Currency   string
	Status     string // as the provider has told last
}

// Noted is a out-of-band refund that was recorded, or has another status now.
type Noted struct {
	ProviderID string
	Fresh      bool // it was not known
}

// NoteOutOfBand records out-of-band refunds, each once, and what was told of them last. One that
// has failed or was canceled stays so: events come in any order. It returns those that it
// has written, in the order of their ids. No id may be given twice.
func NoteOutOfBand(ctx context.Context, tx pgx.Tx, all []OutOfBand) ([]Noted, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b OutOfBand) int { return cmp.Compare(a.ProviderID, b.ProviderID) }) // two transactions wait in one order
	n := len(all)
	ids, purchases, amounts, currencies, statuses := make([]string, n), make([]uuid.UUID, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, f := range all {
		ids[i], purchases[i], amounts[i], currencies[i], statuses[i] = f.ProviderID, f.PurchaseID, int64(f.Amount), f.Currency, f.Status
	}
	noted, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[Noted], `
		INSERT INTO out_of_band_refunds (provider_id, purchase_id, amount, currency, status)
		SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
		ON CONFLICT (provider_id) DO UPDATE SET status = excluded.status WHERE coalesce(out_of_band_refunds.status, '') NOT IN ('failed', 'canceled')
		RETURNING provider_id, xmax = 0`, ids, purchases, amounts, currencies, statuses) // a row that was inserted just now has no xmax
	if err != nil {
		return nil, fmt.Errorf("refund.NoteOutOfBand: %w", err)
	}
	slices.SortFunc(noted, func(a, b Noted) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return noted, nil
}

// DeleteOutOfBand deletes up to limit out-of-band refunds that were seen longer than keep
// ago, from a moment on (nil: from the beginning). It returns where to go on.
func DeleteOutOfBand(ctx context.Context, db postgres.DB, keep time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH old AS MATERIALIZED (
			SELECT provider_id, seen_at FROM out_of_band_refunds
			WHERE seen_at >= coalesce($2, '-infinity'::timestamptz) AND seen_at < statement_timestamp() - $3 * interval '1 second'
			ORDER BY seen_at LIMIT $1 FOR UPDATE SKIP LOCKED
		), deleted AS (
			DELETE FROM out_of_band_refunds WHERE provider_id = ANY(ARRAY(SELECT provider_id FROM old))
		)
		SELECT count(*), coalesce(max(seen_at), $2) FROM old`, limit, from, keep.Seconds()).Scan(&deleted, &next)
	if err != nil {
		return 0, from, fmt.Errorf("refund.DeleteOutOfBand: %w", err)
	}
	return deleted, next, nil
}
