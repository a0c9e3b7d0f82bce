package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// CheckLedger checks the invariants of money in a transaction that a test has made unsound.
func CheckLedger(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	return both(ctx, tx, ledger)
}

// CheckCards checks everything but wallets and draws, as a transaction sees it.
func CheckCards(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	return both(ctx, tx, slices.Concat(invariants, payments))
}

// CheckFreezesAndDraws checks campaigns with their freezes and draws, as a transaction sees
// them.
func CheckFreezesAndDraws(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	return both(ctx, tx, slices.Concat(invariants, draws))
}

// Plans returns how Postgres carries out the query of each invariant, as EXPLAIN shows it.
func Plans(ctx context.Context, tx pgx.Tx) (plans []string, err error) {
	for _, i := range everything {
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

// CheckAll checks everything, as a transaction sees it.
func CheckAll(ctx context.Context, tx pgx.Tx) ([]Violation, error) { return both(ctx, tx, everything) }

// both returns what the whole audit finds, if the walks over the parts find it, too.
func both(ctx context.Context, tx pgx.Tx, some []invariant) (found []Violation, err error) {
	whole, err := check(ctx, tx, some, 10)
	if err != nil {
		return nil, err
	}
	parts, err := InParts(ctx, tx, 1000)
	for _, v := range whole {
		if parts[v.Check] {
			found = append(found, v)
			proven.Store(v.Check, true)
		}
	}
	return found, err
}

// InParts walks over everything once, with so many ids in a part at most, and returns the invariants
// that are broken.
func InParts(ctx context.Context, tx pgx.Tx, size int) (broken map[string]bool, err error) {
	broken = make(map[string]bool)
	for _, w := range walks {
		for after, more := uuid.Nil, true; more; {
			ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], w.next, after)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if more = len(ids) > 0; !more {
				break
			}
			for part := range slices.Chunk(ids, size) {
				for _, i := range w.invariants {
					subjects, err := i.broken(ctx, tx, i.among(w.parts), 10, part)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", w.name, err)
					}
					broken[i.check] = broken[i.check] || len(subjects) > 0
				}
			}
			after = ids[len(ids)-1]
		}
	}
	return broken, nil
}

// proven has the invariants whose violation was found by both.
var proven sync.Map

// Unproven returns the invariants that are not broken by any test that has run.
func Unproven() (checks []string) {
	for _, i := range everything {
		if _, ok := proven.Load(i.check); !ok {
			checks = append(checks, i.check)
		}
	}
	return checks
}

// Begin ends the pauses of all walks.
func Begin(t testing.TB, db postgres.DB) {
	t.Helper()
	if _, err := db.Exec(t.Context(), `UPDATE audit_walks SET resume_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
}

// Redo runs redo like a look that repeats the draw of a campaign.
func Redo(ctx context.Context, db postgres.Beginner, id uuid.UUID, redo func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (wrong string, err error)) error {
	_, err := NewAuditor(db, nil).broken(ctx, walk{parts: `none AS (SELECT)`}, invariant{check: "redo", sql: `SELECT unnest($2::uuid[])::text`, redo: redo}, []uuid.UUID{id})
	return err
}
