package refund

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
)

// Foreign is a refund of one of our payments that somebody else has made at the provider,
// or that was made there although ours was settled by hand.
type Foreign struct {
	ProviderID string // re_… of the provider
	PurchaseID uuid.UUID
	Amount     money.Amount
	Currency   string
	Status     string // as the provider has told last
}

// Noted is a foreign refund that was recorded, or has another status now.
type Noted struct {
	ProviderID string
	Fresh      bool // it was not known
}

// NoteForeign records foreign refunds, each once, and what was told of them last. One that
// has failed or was canceled stays so: events come in any order. It returns those that it
// has written, in the order of their ids. No id may be given twice.
func NoteForeign(ctx context.Context, tx pgx.Tx, all []Foreign) ([]Noted, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Foreign) int { return cmp.Compare(a.ProviderID, b.ProviderID) }) // two transactions wait in one order
	n := len(all)
	ids, purchases, amounts, currencies, statuses := make([]string, n), make([]uuid.UUID, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, f := range all {
		ids[i], purchases[i], amounts[i], currencies[i], statuses[i] = f.ProviderID, f.PurchaseID, int64(f.Amount), f.Currency, f.Status
	}
	noted, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[Noted], `
		INSERT INTO foreign_refunds (provider_id, purchase_id, amount, currency, status)
		SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
		ON CONFLICT (provider_id) DO UPDATE SET status = excluded.status WHERE coalesce(foreign_refunds.status, '') NOT IN ('failed', 'canceled')
		RETURNING provider_id, xmax = 0`, ids, purchases, amounts, currencies, statuses) // a row that was inserted just now has no xmax
	if err != nil {
		return nil, fmt.Errorf("refund.NoteForeign: %w", err)
	}
	slices.SortFunc(noted, func(a, b Noted) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return noted, nil
}
