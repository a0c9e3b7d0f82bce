// Package audit checks the invariants that hold in the database after every commit.
//
// Each invariant is a query for the rows that break it, so [Check] returns nothing for a
// sound database. It also repeats every draw and compares the winners. It never writes.
package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
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

// Check returns the violations in one snapshot of the database: at most limit for each
// query, and every wrong draw.
func Check(ctx context.Context, db postgres.Beginner, limit int) ([]Violation, error) {
	var found []Violation
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`); err != nil {
			return err
		}
		if err := postgres.AllowScans(ctx, tx); err != nil {
			return err
		}
		var err error
		if found, err = check(ctx, tx, slices.Concat(cancelledCampaigns, invariants, payments, ledger, webhooks), limit); err != nil {
			return err
		}
		draws, err := checkDraws(ctx, tx)
		found = append(found, draws...)
		return err
	})
	if err != nil {
		return nil, fault.At(err, "audit.Check")
	}
	return found, nil
}

// Invariants returns the number of invariants: the queries, and one for all draws.
func Invariants() int {
	return len(cancelledCampaigns) + len(invariants) + len(payments) + len(ledger) + len(webhooks) + 1
}

// check runs the query of each invariant.
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
