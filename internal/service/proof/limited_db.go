package proof

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"triprize/internal/platform/postgres"
)

// limitedDB is a database whose queries for several rows run few at a time. A query has its
// permit until its rows are closed.
type limitedDB struct {
	postgres.DB
	permits *semaphore.Weighted
}

func newLimitedDB(db postgres.DB, permits int64) limitedDB {
	return limitedDB{DB: db, permits: semaphore.NewWeighted(permits)}
}

// Query implements postgres.DB.
func (d limitedDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := d.permits.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	rows, err := d.DB.Query(ctx, sql, args...)
	if err != nil {
		d.permits.Release(1)
		return nil, err
	}
	return &limitedRows{Rows: rows, leave: sync.OnceFunc(func() { d.permits.Release(1) })}, nil
}

// limitedRows are rows that give the permit of their query back.
type limitedRows struct {
	pgx.Rows
	leave func()
}

// Close implements pgx.Rows.
func (p *limitedRows) Close() {
	p.Rows.Close()
	p.leave()
}
