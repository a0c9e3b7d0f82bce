package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LockMode says what a statement does about rows that another transaction has locked.
type LockMode string

// The lock modes. Their text ends a SELECT … ORDER BY id that locks rows.
const (
	WaitForLocks LockMode = ` FOR NO KEY UPDATE`             // wait for each, in order
	SkipLocked   LockMode = ` FOR NO KEY UPDATE SKIP LOCKED` // leave them out
)

// LimitLockWaits bounds every wait for a lock in the rest of a transaction,
// instead of postgres.lock_timeout. A statement that would wait longer fails with
// an error that IsLockTimeout recognises, and aborts the transaction.
func LimitLockWaits(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, max(limit.Milliseconds(), 1))); err != nil { // 0 is no limit
		return fmt.Errorf("postgres.LimitLockWaits: %w", err)
	}
	return nil
}
