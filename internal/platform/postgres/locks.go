package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LockMode says what a statement does about rows that another transaction has locked.
type LockMode int

// The lock modes.
const (
	WaitForLocks LockMode = iota // wait for each, in order
	SkipLocked                   // leave them out
)

// SQL returns the end of a SELECT … ORDER BY id that locks rows.
func (m LockMode) SQL() string {
	if m == SkipLocked {
		return ` FOR NO KEY UPDATE SKIP LOCKED`
	}
	return ` FOR NO KEY UPDATE`
}

// QueueLimitLockWaits is LimitLockWaits as the first statement of a batch.
func QueueLimitLockWaits(b *pgx.Batch, limit time.Duration) {
	b.Queue(`SELECT set_config('lock_timeout', $1, true)`, milliseconds(max(limit, time.Millisecond)))
}

// LimitLockWaits bounds every wait for a lock in the rest of a transaction,
// instead of the lock timeout. A statement that would wait longer fails with
// an error that IsLockTimeout recognises, and aborts the transaction.
func LimitLockWaits(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, max(limit.Milliseconds(), 1))); err != nil { // 0 is no limit
		return fmt.Errorf("postgres.LimitLockWaits: %w", err)
	}
	return nil
}
