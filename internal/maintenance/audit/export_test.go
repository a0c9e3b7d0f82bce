package audit

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// CheckLedger checks the invariants of money in a transaction that a test has made unsound.
func CheckLedger(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	return check(ctx, tx, ledger, 10)
}
