package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
)

// ErrRows means that a guarded statement did not change exactly the expected rows: they were changed without the
// lock that protects them. The transaction must not commit.
var ErrRows = errors.New("a statement did not touch the rows it named")

// Exactly returns a check for (*pgx.QueuedQuery).Exec: unless the statement changes n rows, the batch fails with
// ErrRows. what names the rows in the error.
func Exactly(n int, what string) func(tag pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d %s", ErrRows, tag.RowsAffected(), n, what)
		}
		return nil
	}
}

// Send sends a batch in one round trip. An empty one does nothing.
func Send(ctx context.Context, db interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return db.SendBatch(ctx, b).Close()
}

// Each returns a function for (*pgx.QueuedQuery).Query that scans each row into targets and calls do.
func Each(do func(), targets ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, targets, func() error { do(); return nil })
		return err
	}
}

// Scan scans each row of a query into targets and calls do.
func Scan(ctx context.Context, db DB, do func(), targets []any, sql string, args ...any) error {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	return Each(do, targets...)(rows)
}

// Collect returns every row of a query.
func Collect[T any](ctx context.Context, db DB, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// CollectOne returns the only row of a query, or pgx.ErrNoRows.
func CollectOne[T any](ctx context.Context, db DB, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, err
	}
	return pgx.CollectExactlyOneRow(rows, scan)
}

// Found converts the error of a query for one row: pgx.ErrNoRows means false, other errors stay.
func Found(err error) (bool, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Nullable returns nil (NULL) for a zero value.
func Nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// ValueOf is what a nullable column has: the zero value for NULL.
func ValueOf[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// LockMode is what a statement does with rows that another transaction has locked.
type LockMode int

// The lock modes.
const (
	WaitForLocks LockMode = iota // wait for each, in order
	SkipLocked                   // skip them
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

// LimitLockWaits replaces the lock timeout in the rest of a transaction. A statement that would wait longer fails
// with an error that IsLockTimeout recognizes and aborts the transaction.
func LimitLockWaits(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, max(limit.Milliseconds(), 1))); err != nil { // 0 is no limit
		return fmt.Errorf("postgres.LimitLockWaits: %w", err)
	}
	return nil
}

// OlderWriter describes a transaction that writes and is older than a fence: an SQL expression of type xid8, which is not in the future. It is of whatever
// role (autovacuum has none), or prepared. Empty: there is none.
func OlderWriter(ctx context.Context, db DB, fence string, args ...any) (older string, err error) {
	older, err = CollectOne(ctx, db, pgx.RowTo[string], `
		SELECT CASE WHEN x.pid IS NULL THEN 'it is prepared' ELSE format('session %s (%s)%s', x.pid, s.application_name, ', since ' || s.xact_start) END
		FROM (SELECT `+fence+`::xid AS fence OFFSET 0) f JOIN pg_locks x ON x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND age(x.transactionid) > age(f.fence)
		LEFT JOIN pg_stat_activity s ON s.pid = x.pid
		WHERE (x.pid IS NULL OR s.usesysid IS NOT NULL) AND EXISTS (SELECT FROM pg_locks w WHERE w.virtualtransaction = x.virtualtransaction AND w.mode = 'RowExclusiveLock'
		      AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
		LIMIT 1`, args...)
	_, err = Found(err)
	return older, fault.At(err, "postgres.OlderWriter")
}
