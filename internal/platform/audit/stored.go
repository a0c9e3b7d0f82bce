package audit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// maxStored bounds what is stored: with so many violations, more rows are of no use.
const maxStored = 200

// StoredViolation is a violation that a check of the running system has found, and no later one has found gone.
type StoredViolation struct {
	Check    string    `json:"check"`
	Walk     string    `json:"walk"`     // its name
	ID       uuid.UUID `json:"id"`       // that the walk came by
	Subjects []string  `json:"subjects"` // the first rows that break the invariant
	FoundAt  time.Time `json:"found_at"`
	SeenAt   time.Time `json:"seen_at"`
}

// ListStored returns the violations that are stored, the oldest first.
func ListStored(ctx context.Context, db postgres.DB) ([]StoredViolation, error) {
	all, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[StoredViolation], `
		SELECT invariant, walk, id, subjects, found_at, seen_at FROM audit_violations ORDER BY found_at, walk, id, invariant`)
	return all, fault.At(err, "audit.ListStored")
}

// State is what is known about one invariant.
type State struct {
	Check      string
	LookedAt   time.Time // a part of the rows was checked last
	Violations int       // stored
}

// States returns the state of each invariant that was checked on the running system.
func States(ctx context.Context, db postgres.DB) ([]State, error) {
	all, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[State], `
		SELECT l.invariant, l.checked_at, count(v.id) FROM audit_checks l LEFT JOIN audit_violations v ON v.invariant = l.invariant
		GROUP BY l.invariant, l.checked_at ORDER BY l.invariant`)
	return all, fault.At(err, "audit.States")
}

// part is the result of checking a part.
type part struct {
	walk    string
	ids     []uuid.UUID
	checked []string
	found   []finding
}

// store stores what a check has found, and deletes what it has found gone. The log has each.
func (a *Auditor) store(ctx context.Context, l part, done sweep.Counts) error {
	type key struct {
		ID    uuid.UUID
		Check string
	}
	slices.SortFunc(l.found, func(a, b finding) int { return cmp.Or(uuidv7.Compare(a.id, b.id), strings.Compare(a.check, b.check)) })
	var gone []key
	var fresh []finding
	err := postgres.InTx(ctx, a.db, func(tx pgx.Tx) (err error) {
		ids, checks := make([]uuid.UUID, len(l.found)), make([]string, len(l.found))
		fresh = nil
		for i, f := range l.found {
			ids[i], checks[i] = f.id, f.check
			added, err := postgres.Collect(ctx, tx, pgx.RowTo[bool], `
				INSERT INTO audit_violations AS v (walk, id, invariant, subjects)
				SELECT $1, $2, $3, $4
				WHERE (SELECT count(*) FROM audit_violations) < $5
				   OR EXISTS (SELECT FROM audit_violations WHERE walk = $1 AND id = $2 AND invariant = $3)
				ON CONFLICT (walk, id, invariant) DO UPDATE SET subjects = EXCLUDED.subjects, seen_at = clock_timestamp()
				RETURNING xmax = 0`, l.walk, f.id, f.check, f.subjects, maxStored)
			if err != nil {
				return err
			}
			if len(added) > 0 && added[0] {
				fresh = append(fresh, f)
			}
		}
		gone, err = postgres.Collect(ctx, tx, pgx.RowToStructByPos[key], `
			DELETE FROM audit_violations v WHERE walk = $1 AND id = ANY($2) AND invariant = ANY($3)
			  AND NOT EXISTS (SELECT FROM unnest($4::uuid[], $5::text[]) AS f (id, invariant) WHERE f.id = v.id AND f.invariant = v.invariant)
			RETURNING id, invariant`, l.walk, l.ids, l.checked, ids, checks)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO audit_checks (invariant, checked_at) SELECT i, clock_timestamp() FROM unnest($1::text[]) AS i ORDER BY i
			ON CONFLICT (invariant) DO UPDATE SET checked_at = EXCLUDED.checked_at`, l.checked)
		return err
	})
	if err != nil {
		return fault.At(err, "audit.store")
	}
	for _, f := range fresh {
		a.logger.Error("an invariant is broken", "check", f.check, "walk", l.walk, "id", f.id, "rows", f.subjects)
	}
	for _, k := range gone {
		a.logger.Info("an invariant holds again", "check", k.Check, "walk", l.walk, "id", k.ID)
	}
	done["found"] += len(fresh)
	done["gone"] += len(gone)
	return nil
}
