package proof

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"triprize/internal/platform/postgres"
)

// narrow is a database whose queries for several rows run few at a time. A query has its
// place until its rows are closed.
type narrow struct {
	postgres.DB
	places *semaphore.Weighted
}

func newNarrow(db postgres.DB, places int64) narrow {
	return narrow{DB: db, places: semaphore.NewWeighted(places)}
}

// Query implements postgres.DB.
func (n narrow) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := n.places.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	rows, err := n.DB.Query(ctx, sql, args...)
	if err != nil {
		n.places.Release(1)
		return nil, err
	}
	return &placed{Rows: rows, leave: sync.OnceFunc(func() { n.places.Release(1) })}, nil
}

// placed are rows that give the place of their query back.
type placed struct {
	pgx.Rows
	leave func()
}

// Close implements pgx.Rows.
func (p *placed) Close() {
	p.Rows.Close()
	p.leave()
}
