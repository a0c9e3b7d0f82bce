package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

const (
	subjectsKept = 5             // of one invariant and id
	standingSeen = 50            // ids whose violations are looked at again in one turn
	turnLease    = time.Minute   // so long after its beginning a turn that was cut off is begun again
	pace         = 300           // a walk pauses for so many times the time of its turn
	longestPause = 6 * time.Hour // of a walk
)

// An Auditor looks at a running system, a part at a time. Several may do so at once.
//
// A query sees one snapshot, so sales that go on break nothing. It takes no lock that a sale
// waits for, and a snapshot ends with its query. A walk uses a three hundredth of its time.
type Auditor struct {
	db     postgres.Beginner
	logger *slog.Logger
}

// NewAuditor returns an Auditor.
func NewAuditor(db postgres.Beginner, logger *slog.Logger) *Auditor { return &Auditor{db, logger} }

// Done is what turns have looked at and found.
type Done struct {
	Turns     int
	Looked    int // ids
	Found     int // violations that were not stored
	Gone      int // violations that were stored and are none any more
	Unchecked int // invariants that could not be checked
}

// Run gives each walk whose pause is over a turn. A query that fails leaves the others: its
// invariant is not noted as checked.
func (a *Auditor) Run(ctx context.Context) (done Done, err error) {
	var failed []error
	for _, w := range walks {
		failed = append(failed, a.turn(ctx, w, &done))
		if ctx.Err() != nil {
			break
		}
	}
	return done, fault.At(errors.Join(failed...), "audit.Run")
}

// turn looks at what is known to be wrong, at what has changed, and at the next few.
func (a *Auditor) turn(ctx context.Context, w walk, done *Done) error {
	after, due, err := a.claim(ctx, w)
	if err != nil || !due {
		return err
	}
	start := time.Now()
	done.Turns++
	failed := []error{a.lookAll(ctx, w, done, `SELECT DISTINCT id FROM audit_violations WHERE walk = $1 ORDER BY id LIMIT $2`, w.name, standingSeen)}
	if w.recent != "" {
		failed = append(failed, a.lookAll(ctx, w, done, w.recent))
	}
	next, err := a.ids(ctx, w.next, after)
	if err == nil && len(next) == 0 {
		next, err = a.ids(ctx, w.next, uuid.Nil)
	}
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	failed = append(failed, a.look(ctx, w, next, done))
	if errors.Is(ctx.Err(), context.Canceled) { // it begins again
		return ctx.Err()
	}
	if len(next) > 0 {
		after = next[len(next)-1]
	}
	return errors.Join(append(failed, a.release(context.WithoutCancel(ctx), w, after, min(pace*time.Since(start), longestPause)))...)
}

// claim takes a walk whose pause is over.
func (a *Auditor) claim(ctx context.Context, w walk) (after uuid.UUID, due bool, err error) {
	err = postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		claimed, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
			INSERT INTO audit_walks AS w (walk, after, resume_at) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')
			ON CONFLICT (walk) DO UPDATE SET resume_at = EXCLUDED.resume_at WHERE w.resume_at <= clock_timestamp() RETURNING after`,
			w.name, uuid.Nil, turnLease.Seconds())
		if due = len(claimed) > 0; due {
			after = claimed[0]
		}
		return err
	})
	return after, due, err
}

// release lets the next turn begin after a pause.
func (a *Auditor) release(ctx context.Context, w walk, after uuid.UUID, pause time.Duration) error {
	return postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE audit_walks SET after = $2, resume_at = clock_timestamp() + $3 * interval '1 second' WHERE walk = $1`, w.name, after, pause.Seconds())
		return err
	})
}

func (a *Auditor) ids(ctx context.Context, sql string, args ...any) (ids []uuid.UUID, err error) {
	err = postgres.InTx(ctx, a.db, func(tx pgx.Tx) error {
		ids, err = postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], sql, args...)
		return err
	})
	slices.SortFunc(ids, uuidv7.Compare)
	return ids, err
}

func (a *Auditor) lookAll(ctx context.Context, w walk, done *Done, sql string, args ...any) error {
	ids, err := a.ids(ctx, sql, args...)
	if err != nil || len(ids) == 0 {
		return err
	}
	return a.look(ctx, w, ids, done)
}

// look checks every invariant of a walk among ids, and stores what it has found.
func (a *Auditor) look(ctx context.Context, w walk, ids []uuid.UUID, done *Done) error {
	seen := looked{walk: w.name, ids: ids}
	var failed []error
	for _, i := range w.invariants {
		found, err := a.broken(ctx, w, i, ids)
		if err != nil {
			failed = append(failed, err)
			done.Unchecked++
			continue
		}
		seen.checked, seen.found = append(seen.checked, i.check), append(seen.found, found...)
	}
	done.Looked += len(ids)
	return errors.Join(append(failed, a.keep(context.WithoutCancel(ctx), seen, done))...)
}

// finding is what breaks one invariant of one id.
type finding struct {
	id       uuid.UUID
	check    string
	subjects []string
}

// broken checks one invariant. When something is wrong with several ids, it looks at each half:
// what is stored belongs to one id.
func (a *Auditor) broken(ctx context.Context, w walk, i invariant, ids []uuid.UUID) ([]finding, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var subjects []string
	err := postgres.InTx(ctx, a.db, func(tx pgx.Tx) (err error) {
		subjects, err = i.narrow(ctx, tx, w, ids)
		return err
	})
	if err != nil || len(subjects) == 0 {
		return nil, err
	}
	if len(ids) == 1 {
		return []finding{{ids[0], i.check, subjects}}, nil
	}
	first, err := a.broken(ctx, w, i, ids[:len(ids)/2])
	if err != nil {
		return nil, err
	}
	rest, err := a.broken(ctx, w, i, ids[len(ids)/2:])
	return append(first, rest...), err
}

// narrow checks one invariant among ids. Parts are joined as wholes, and found by an index.
func (i invariant) narrow(ctx context.Context, tx pgx.Tx, w walk, ids []uuid.UUID) ([]string, error) {
	var b pgx.Batch
	b.Queue(beginSnapshot)
	b.Queue(`SELECT set_config(name, 'on', true) FROM unnest(ARRAY['enable_hashjoin', 'enable_mergejoin', 'enable_material']) AS name`)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("%s: %w", i.check, err)
	}
	return i.broken(ctx, tx, i.among(w.parts), subjectsKept, ids)
}
