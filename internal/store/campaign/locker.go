package campaign

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Locker is a session of Postgres that has locked the row of a campaign.
type Locker struct {
	PID         int    // of its server process: pg_terminate_backend ends it; 0: unknown
	Application string // its application_name; may be empty
}

// String names the session for people.
func (l Locker) String() string {
	if l.PID == 0 {
		return "an unknown session of Postgres"
	}
	return fmt.Sprintf("the session of Postgres with pid %d and application_name %q", l.PID, l.Application)
}

// FindLocker returns the session that has locked the row of a campaign. It is unknown when
// the row is free, when a prepared transaction has locked it, and when several sessions
// share a lock. It waits for nothing.
//
// The lock of a row is not in pg_locks: the row itself names the transaction (xmax), and
// every transaction has a lock on its own id.
func FindLocker(ctx context.Context, db postgres.DB, id uuid.UUID) (l Locker, err error) {
	err = db.QueryRow(ctx, `
		SELECT l.pid, coalesce(a.application_name, '') FROM campaigns c
		JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted AND l.pid IS NOT NULL
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE c.id = $1 AND l.mode = 'ExclusiveLock' LIMIT 1`, id).Scan(&l.PID, &l.Application)
	if errors.Is(err, pgx.ErrNoRows) {
		return Locker{}, nil
	}
	return l, fault.At(err, "campaign.FindLocker(%s)", id)
}
