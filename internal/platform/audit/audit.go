// Package audit checks the invariants that hold in the database after every commit.
//
// An [Invariant] is a query for the rows that break it, so a sound database has none. Each topic has
// those whose highest table is its own. [Check] looks at everything as of one moment and writes
// nothing. An [Auditor] walks over a running system, a part at a time, with the same queries, and
// stores what it finds.
package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Violation is one row that breaks one invariant.
type Violation struct {
	Check     string `json:"check"`     // the short name of the invariant, as metrics have it
	Invariant string `json:"invariant"` // the sentence that is not true
	Subject   string `json:"subject"`   // what is wrong: ids and numbers
}

// Invariant is a query that returns one text column, and begins with SELECT or WITH. With Redo it
// returns the ids of the campaigns to repeat.
type Invariant struct {
	Check string // its short name
	Name  string // the sentence that must be true
	SQL   string
	Key   string // the setting triprize.key of its transaction; empty: none
	Redo  func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (wrong string, err error)
}

const beginSnapshot = `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`

// Check returns the violations of all in one snapshot of the database: at most limit for each
// query, and every wrong draw.
func Check(ctx context.Context, db postgres.Beginner, all []Invariant, limit int) (found []Violation, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, beginSnapshot); err != nil {
			return err
		}
		if err := postgres.AllowScans(ctx, tx); err != nil {
			return err
		}
		found, err = CheckIn(ctx, tx, all, limit)
		return err
	})
	if err != nil {
		return nil, fault.At(err, "audit.Check")
	}
	return found, nil
}

// CheckIn is Check in the caller's transaction.
func CheckIn(ctx context.Context, tx pgx.Tx, all []Invariant, limit int) (found []Violation, err error) {
	for _, i := range all {
		subjects, err := i.Broken(ctx, tx, i.SQL, limit)
		if err != nil {
			return nil, err
		}
		for _, s := range subjects {
			found = append(found, Violation{i.Check, i.Name, s})
		}
	}
	return found, nil
}

// Broken returns what breaks the invariant: the rows of its query sql, which may be narrowed
// down by args, and at most limit of them.
func (i Invariant) Broken(ctx context.Context, tx pgx.Tx, sql string, limit int, args ...any) (subjects []string, err error) {
	if i.Key != "" { // a parameter: it is in no statement that is logged or counted
		if _, err := tx.Exec(ctx, `SELECT set_config('triprize.key', $1, true)`, i.Key); err != nil {
			return nil, fmt.Errorf("%s: %w", i.Check, err)
		}
	}
	bound := &limit
	if i.Redo != nil {
		bound = nil
	}
	found, err := postgres.Collect(ctx, tx, pgx.RowTo[string], sql+" LIMIT $1", append([]any{bound}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.Check, err)
	}
	if i.Redo == nil {
		return found, nil
	}
	for _, campaign := range found {
		id, err := uuid.Parse(campaign)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.Check, err)
		}
		wrong, err := i.Redo(ctx, tx, id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.Check, err)
		}
		if wrong != "" {
			subjects = append(subjects, fmt.Sprintf("campaign %s: %s", id, wrong))
		}
	}
	return subjects, nil
}

// Among returns the query of the invariant for a part of the rows: each of parts is a common
// table expression that hides the table of its name.
func (i Invariant) Among(parts string) string {
	sql := strings.TrimSpace(i.SQL)
	if rest, more := strings.CutPrefix(sql, "WITH "); more {
		sql = ", " + rest
	}
	return "WITH " + parts + " " + sql
}
