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

// Foreign is a refund of one of our payments that somebody else has made at the provider.
type Foreign struct {
	ProviderID string // re_… of the provider
	PurchaseID uuid.UUID
	Amount     money.Amount
	Currency   string
	Status     string // as the provider has told last
}

// NoteForeign records foreign refunds, each once, and what was told of them last. It
// returns the ids of those that were not known. No id may be given twice.
func NoteForeign(ctx context.Context, tx pgx.Tx, all []Foreign) (fresh []string, err error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Foreign) int { return cmp.Compare(a.ProviderID, b.ProviderID) }) // two transactions wait in one order
	n := len(all)
	ids, purchases, amounts, currencies, statuses := make([]string, n), make([]uuid.UUID, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, f := range all {
		ids[i], purchases[i], amounts[i], currencies[i], statuses[i] = f.ProviderID, f.PurchaseID, int64(f.Amount), f.Currency, f.Status
	}
	type told struct {
		ID    string
		Fresh bool
	}
	noted, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[told], `
		INSERT INTO foreign_refunds (provider_id, purchase_id, amount, currency, status)
		SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
		ON CONFLICT (provider_id) DO UPDATE SET status = excluded.status
		RETURNING provider_id, xmax = 0`, ids, purchases, amounts, currencies, statuses) // a row that was inserted just now has no xmax
	if err != nil {
		return nil, fmt.Errorf("refund.NoteForeign: %w", err)
	}
	for _, one := range noted {
		if one.Fresh {
			fresh = append(fresh, one.ID)
		}
	}
	return fresh, nil
}
