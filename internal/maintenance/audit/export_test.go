package audit

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// CheckLedger checks the invariants of money in a transaction that a test has made unsound.
func CheckLedger(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	return check(ctx, tx, ledger, 10)
}

// CheckCards checks everything but wallets and draws, as a transaction sees it.
func CheckCards(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	return check(ctx, tx, slices.Concat(invariants, payments), 10)
}

// CardInvariants returns the names of the invariants of payments.
func CardInvariants() (names []string) {
	for _, i := range payments {
		names = append(names, i.name)
	}
	return names
}

// CheckFreezesAndDraws checks campaigns with their freezes and draws, as a transaction sees
// them.
func CheckFreezesAndDraws(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	found, err := check(ctx, tx, invariants, 10)
	if err != nil {
		return nil, err
	}
	draws, err := checkDraws(ctx, tx)
	return append(found, draws...), err
}

// Plans returns how Postgres carries out the query of each invariant, as EXPLAIN shows it.
func Plans(ctx context.Context, tx pgx.Tx) (plans []string, err error) {
	for _, i := range slices.Concat(cancelledCampaigns, invariants, payments, ledger, webhooks) {
		rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, TIMING off, COSTS off) "+i.sql)
		if err != nil {
			return nil, err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		plans = append(plans, i.name+"\n"+strings.Join(lines, "\n"))
	}
	return plans, nil
}
