package upkeep_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/entry/upkeep"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
)

// plansOf returns how Postgres carries out the query of each invariant, as EXPLAIN shows it.
func plansOf(ctx context.Context, tx pgx.Tx) (plans []string, err error) {
	for _, i := range upkeep.Invariants {
		rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, TIMING off, COSTS off) "+i.SQL)
		if err != nil {
			return nil, err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		plans = append(plans, i.Name+"\n"+strings.Join(lines, "\n"))
	}
	return plans, nil
}

// checkIn returns what the whole audit finds, as a transaction sees it, if the walks over the parts
// find it, too.
func checkIn(ctx context.Context, tx pgx.Tx) (found []audit.Violation, err error) {
	whole, err := audit.CheckIn(ctx, tx, upkeep.Invariants, 10)
	if err != nil {
		return nil, err
	}
	parts, err := inParts(ctx, tx, 1000)
	for _, v := range whole {
		if parts[v.Check] {
			found = append(found, v)
			proven.Store(v.Check, true)
		}
	}
	return found, err
}

// inParts walks over everything once, with so many ids in a part at most, and returns the invariants
// that are broken.
func inParts(ctx context.Context, tx pgx.Tx, size int) (broken map[string]bool, err error) {
	broken = make(map[string]bool)
	for _, w := range upkeep.Walks {
		for after, more := uuid.Nil, true; more; {
			ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], w.Next, after)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.Name, err)
			}
			if more = len(ids) > 0; !more {
				break
			}
			for part := range slices.Chunk(ids, size) {
				for _, i := range w.Invariants {
					subjects, err := i.Broken(ctx, tx, i.Among(w.Parts), 10, part)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", w.Name, err)
					}
					broken[i.Check] = broken[i.Check] || len(subjects) > 0
				}
			}
			after = ids[len(ids)-1]
		}
	}
	return broken, nil
}

// proven has the invariants whose violation was found by both.
var proven sync.Map

// unproven returns the invariants that are not broken by any test that has run.
func unproven() (checks []string) {
	for _, i := range upkeep.Invariants {
		if _, ok := proven.Load(i.Check); !ok {
			checks = append(checks, i.Check)
		}
	}
	return checks
}
