package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Backoff is how long a message is left alone after it was last seen: First, as
// long as its delivery is at most Deaths; from then on twice as long for every
// further death of a worker with its jobs, at most Longest.
//
// Deaths is how many workers a job may take with it before it is given up. Up to
// there the other jobs of a message must not wait longer for what is not their
// fault. A message that comes back even then has something wrong with it that no
// count of attempts sees.
type Backoff struct {
	First   time.Duration
	Longest time.Duration
	Deaths  int
}

// Overdue is a message that has been in the outbox for longer than its backoff.
type Overdue struct {
	ID     uuid.UUID
	Kind   job.Kind
	SeenAt time.Time
}

// Walk goes through the messages that are overdue when it begins, the oldest
// first, each once: those that stay overdue hide nothing behind them.
type Walk struct {
	db      postgres.DB
	backoff Backoff
	began   time.Time // by the database's clock
	last    Overdue
}

// FindOverdue begins a walk.
func FindOverdue(ctx context.Context, db postgres.DB, backoff Backoff) (*Walk, error) {
	w := &Walk{db: db, backoff: backoff}
	if err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&w.began); err != nil {
		return nil, fmt.Errorf("outbox.FindOverdue: %w", err)
	}
	return w, nil
}

// Next returns the next messages, at most limit; none at the end. The first
// condition on seen_at is one that the index can be asked for.
func (w *Walk) Next(ctx context.Context, limit int) ([]Overdue, error) {
	found, err := postgres.Collect(ctx, w.db, pgx.RowToStructByPos[Overdue], `
		SELECT id, kind, seen_at FROM outbox_messages
		WHERE (seen_at, id) > ($1, $2) AND seen_at < $3::timestamptz - $4 * interval '1 second'
		  AND seen_at < $3::timestamptz - least($4 * 2 ^ least(greatest(delivery - $5, 0), 20), $6) * interval '1 second'
		ORDER BY seen_at, id LIMIT $7`,
		w.last.SeenAt, w.last.ID, w.began, w.backoff.First.Seconds(), w.backoff.Deaths, w.backoff.Longest.Seconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("outbox.Walk: %w", err)
	}
	if len(found) > 0 {
		w.last = found[len(found)-1]
	}
	return found, nil
}
