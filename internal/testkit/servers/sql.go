package servers

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Exec executes SQL and fails the test when that fails. db is a pool, a connection or a
// transaction. Exec and Value work in a cleanup, too.
func Exec(t testing.TB, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(context.WithoutCancel(t.Context()), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// Value returns the one value of the one row that a query has, and fails the test when the query
// fails or has no row. db is a pool, a connection or a transaction.
func Value[V any](t testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any) (value V) {
	t.Helper()
	if err := db.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
