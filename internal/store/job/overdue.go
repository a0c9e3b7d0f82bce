package job

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Backoff is how long a ring is left alone after it was last seen: First, as
// long as its number is at most Deaths; from then on twice as long for every
// death of a worker with its jobs, at most Longest.
//
// Deaths is how many workers a job may take with it before it is given up. Up to
// there others must not wait longer for what is no fault of theirs; a ring that
// comes back even then has something wrong with it that no count of attempts sees.
type Backoff struct {
	First   time.Duration
	Longest time.Duration
	Deaths  int
}

// OverdueRing is a ring that has been in the outbox for longer than its backoff.
type OverdueRing struct {
	ID     uuid.UUID
	Kind   Kind
	SeenAt time.Time
}

// Overdue walks through the rings that are overdue when the walk begins, the
// oldest first, each once: those that stay overdue hide nothing behind them.
type Overdue struct {
	db      postgres.DB
	backoff Backoff
	began   time.Time // by the database's clock
	last    OverdueRing
}

// FindOverdue begins a walk.
func FindOverdue(ctx context.Context, db postgres.DB, backoff Backoff) (*Overdue, error) {
	o := &Overdue{db: db, backoff: backoff}
	if err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&o.began); err != nil {
		return nil, fmt.Errorf("job.FindOverdue: %w", err)
	}
	return o, nil
}

// Next returns the next rings, at most limit; none at the end. The first
// condition on seen_at is one that the index can be asked for.
func (o *Overdue) Next(ctx context.Context, limit int) ([]OverdueRing, error) {
	rows, err := o.db.Query(ctx, `
		SELECT id, kind, seen_at FROM rings
		WHERE (seen_at, id) > ($1, $2) AND seen_at < $3::timestamptz - $4 * interval '1 second'
		  AND seen_at < $3::timestamptz - least($4 * 2 ^ least(greatest(number - $5, 0), 20), $6) * interval '1 second'
		ORDER BY seen_at, id LIMIT $7`,
		o.last.SeenAt, o.last.ID, o.began, o.backoff.First.Seconds(), o.backoff.Deaths, o.backoff.Longest.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("job.Overdue: %w", err)
	}
	rings, err := pgx.CollectRows(rows, pgx.RowToStructByPos[OverdueRing])
	if err != nil {
		return nil, fmt.Errorf("job.Overdue: %w", err)
	}
	if len(rings) > 0 {
		o.last = rings[len(rings)-1]
	}
	return rings, nil
}
