// Package audit is the invariants of the system as queries: what must be true of
// the database at any committed moment, whoever crashed in between. It reads and
// never writes. Every query returns the rows that break it, so a sound database
// returns nothing.
package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Violation is one row that breaks one invariant.
type Violation struct {
	Invariant string `json:"invariant"`
	Subject   string `json:"subject"` // what is wrong: ids and numbers
}

type invariant struct {
	name string
	sql  string // returns one text column
}

// Check returns every violation, at most limit for each invariant, as of one moment.
func Check(ctx context.Context, db postgres.Beginner, limit int) ([]Violation, error) {
	var found []Violation
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`); err != nil {
			return err
		}
		var err error
		if found, err = check(ctx, tx, slices.Concat(invariants, ledger), limit); err != nil {
			return err
		}
		draws, err := checkDraws(ctx, tx)
		found = append(found, draws...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("audit.Check: %w", err)
	}
	return found, nil
}

// Invariants returns how many there are; that draws can be redone is one of them.
func Invariants() int { return len(invariants) + len(ledger) + 1 }

// check asks for what breaks each of the invariants.
func check(ctx context.Context, tx pgx.Tx, all []invariant, limit int) (found []Violation, err error) {
	for _, i := range all {
		rows, err := tx.Query(ctx, i.sql+" LIMIT $1", limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.name, err)
		}
		subjects, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.name, err)
		}
		for _, s := range subjects {
			found = append(found, Violation{i.name, s})
		}
	}
	return found, nil
}
