package audit

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// Walk goes over what one table has, in the order of ids, a few at a time, and then begins
// anew. Its queries see only the rows that belong to these few.
type Walk struct {
	Name       string
	Pace       int // the pause after a pass, as a multiple of its duration
	Invariants []Invariant
	Next       string // the ids after $1, or none
	Recent     string // the ids that have changed lately; empty: Next reaches them as soon
	Parts      string // the tables, as far as they belong to $2
}

const (
	maxSubjects  = 5                // of one invariant and id
	recheckAfter = 30 * time.Second // a stored violation is checked again
	recheckFor   = time.Second      // in one run; after it no other recheck begins
	passLease    = time.Minute      // a pass that was interrupted begins again so long after its start
	longestPause = 6 * time.Hour    // of a walk
	storeTimeout = 5 * time.Second  // of what a check stores at its end, also when it is interrupted
)

// An Auditor checks a running system, a part at a time. Several may run at once.
//
// A query sees one snapshot, so sales that go on break nothing. It takes no lock that a sale
// waits for, and a snapshot ends with its query. All walks together use a hundredth of the time.
type Auditor struct {
	db     postgres.Pool
	walks  []Walk
	logger *slog.Logger
}

// NewAuditor returns an Auditor of walks.
func NewAuditor(db postgres.Pool, walks []Walk, logger *slog.Logger) *Auditor {
	return &Auditor{db, walks, logger}
}

// Sweep is the sweep audit: it checks the invariants on the next parts of the rows.
func (a *Auditor) Sweep() sweep.Sweep {
	return sweep.Sweep{Name: "audit", Every: 10 * time.Second, Interruptible: true, Counts: []string{"passes", "checked", "found", "gone", "unchecked"},
		Run: func(ctx context.Context, run sweep.Run) error {
			done, err := a.Run(ctx)
			maps.Copy(run.Counts, done)
			return err
		}}
}

// Run checks stored violations again, and makes a pass of each walk whose pause is over. When a
// query fails, the others still run, and its invariant is not recorded as checked. Counted are passes, checked ids,
// violations that were found and not stored or stored and are gone, and invariants that could not be checked.
func (a *Auditor) Run(ctx context.Context) (done sweep.Counts, err error) {
	done = make(sweep.Counts)
	failed := []error{a.recheck(ctx, done)}
	for _, w := range a.walks {
		failed = append(failed, a.pass(ctx, w, done))
		if ctx.Err() != nil {
			break
		}
	}
	return done, fault.At(errors.Join(failed...), "audit.Run")
}

// recheck checks stored violations again, those first that were not seen for longest.
func (a *Auditor) recheck(ctx context.Context, done sweep.Counts) error {
	type standing struct {
		Walk, Invariant string
		ID              uuid.UUID
	}
	all, err := postgres.Collect(ctx, a.db, pgx.RowToStructByPos[standing], `
		SELECT walk, invariant, id FROM audit_violations WHERE seen_at < clock_timestamp() - $1 * interval '1 second' ORDER BY seen_at LIMIT 100`, recheckAfter.Seconds())
	start := time.Now()
	for _, v := range all {
		if time.Since(start) > recheckFor {
			break
		}
		if at := slices.IndexFunc(a.walks, func(w Walk) bool { return w.Name == v.Walk }); at >= 0 {
			w := a.walks[at]
			w.Invariants = a.named(v.Invariant)
			err = errors.Join(err, a.check(ctx, w, []uuid.UUID{v.ID}, done))
		}
	}
	return err
}

// named returns the invariant of a name, of whichever walk: a release may move it to another.
func (a *Auditor) named(check string) []Invariant {
	for _, w := range a.walks {
		if at := slices.IndexFunc(w.Invariants, func(i Invariant) bool { return i.Check == check }); at >= 0 {
			return w.Invariants[at : at+1]
		}
	}
	return nil
}

// pass checks what has changed lately, and the next few.
func (a *Auditor) pass(ctx context.Context, w Walk, done sweep.Counts) error {
	after, due, err := a.lease(ctx, w)
	if err != nil || !due {
		return err
	}
	start := time.Now()
	done["passes"]++
	next, err := a.ids(ctx, w.Next, after)
	if err == nil && len(next) == 0 {
		next, err = a.ids(ctx, w.Next, uuid.Nil)
	}
	ids := slices.Clone(next)
	if err == nil && w.Recent != "" {
		recent, failed := a.ids(ctx, w.Recent)
		ids, err = append(ids, recent...), failed
	}
	if err != nil {
		return err
	}
	slices.SortFunc(ids, uuidv7.Compare)
	err = a.check(ctx, w, slices.Compact(ids), done)
	if errors.Is(ctx.Err(), context.Canceled) { // it begins again
		return ctx.Err()
	}
	if len(next) > 0 {
		after = next[len(next)-1]
	}
	pause := min(time.Duration(w.Pace)*time.Since(start), longestPause)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_, failed := a.db.Exec(ending, `UPDATE audit_walks SET after = $2, resume_at = clock_timestamp() + $3 * interval '1 second' WHERE walk = $1`,
		w.Name, after, pause.Seconds())
	return errors.Join(err, failed)
}

// lease leases a walk whose pause is over.
func (a *Auditor) lease(ctx context.Context, w Walk) (after uuid.UUID, due bool, err error) {
	err = a.db.QueryRow(ctx, `
		INSERT INTO audit_walks AS w (walk, after, resume_at) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')
		ON CONFLICT (walk) DO UPDATE SET resume_at = EXCLUDED.resume_at WHERE w.resume_at <= clock_timestamp() RETURNING after`,
		w.Name, uuid.Nil, passLease.Seconds()).Scan(&after)
	due, err = postgres.Found(err)
	return after, due, err
}

// ids returns the ids that a query of a walk names, sorted. They are read in the order of an
// index, and not all of them to be sorted.
func (a *Auditor) ids(ctx context.Context, sql string, args ...any) (ids []uuid.UUID, err error) {
	err = postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off`); err != nil {
			return err
		}
		ids, err = postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], sql, args...)
		return err
	})
	slices.SortFunc(ids, uuidv7.Compare)
	return ids, err
}

// check checks every invariant of a walk among ids, and stores what it has found.
func (a *Auditor) check(ctx context.Context, w Walk, ids []uuid.UUID, done sweep.Counts) error {
	seen := part{walk: w.Name, ids: ids}
	var failed []error
	for _, i := range w.Invariants {
		found, err := a.broken(ctx, w, i, ids)
		if err != nil {
			failed = append(failed, err)
			done["unchecked"]++
			continue
		}
		seen.checked, seen.found = append(seen.checked, i.Check), append(seen.found, found...)
	}
	done["checked"] += len(ids)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return errors.Join(append(failed, a.store(ending, seen, done))...)
}

// finding is what breaks one invariant of one id.
type finding struct {
	id       uuid.UUID
	check    string
	subjects []string
}

// broken checks one invariant. When something is wrong with several ids, it checks each half:
// what is stored belongs to one id.
func (a *Auditor) broken(ctx context.Context, w Walk, i Invariant, ids []uuid.UUID) ([]finding, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var subjects []string
	err := postgres.InTx(ctx, a.db, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, beginPart); err != nil {
			return err
		}
		subjects, err = i.Broken(ctx, tx, i.Among(w.Parts), maxSubjects, ids)
		return err
	})
	if err != nil || len(subjects) == 0 {
		return nil, err
	}
	if len(ids) == 1 {
		return []finding{{ids[0], i.Check, subjects}}, nil
	}
	first, err := a.broken(ctx, w, i, ids[:len(ids)/2])
	if err != nil {
		return nil, err
	}
	rest, err := a.broken(ctx, w, i, ids[len(ids)/2:])
	return append(first, rest...), err
}

// Parts are joined as wholes, and found by an index.
const beginPart = beginSnapshot + `; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL enable_material = on`
