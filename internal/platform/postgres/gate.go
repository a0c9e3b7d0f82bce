package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// Gate lets transactions that may wait for a lock into a pool: at most three fifths
// of its connections at a time, so that however many rows are locked elsewhere, the
// rest accepts jobs, reads, and tells whether the process is ready. Half of these
// are never for [Gate.Retry] transactions.
type Gate struct {
	pool             *pgxpool.Pool
	permits, retries *semaphore.Weighted // retries: of the permits
	timeout          time.Duration       // of the wait for them
	metrics          *gateMetrics
}

// NewGate returns the Gate of a pool. A process has one.
func NewGate(pool *pgxpool.Pool, registry prometheus.Registerer) *Gate {
	n := Permits(pool.Config().MaxConns)
	return &Gate{pool: pool, permits: semaphore.NewWeighted(n), retries: semaphore.NewWeighted(max(n/2, 1)), timeout: 2 * time.Second, metrics: newGateMetrics(registry)}
}

// Permits is how many of so many connections are for transactions that may wait for locks.
func Permits(connections int32) int64 { return int64(max(connections*3/5, 1)) }

// Pool returns the pool, for statements that never wait for a lock.
func (g *Gate) Pool() *pgxpool.Pool { return g.pool }

// FirstTry is for transactions that wait for a locked row only once: work on what is not
// known to be locked. limit bounds each wait for a lock, instead of
// the lock timeout; 0: it does not.
func (g *Gate) FirstTry(limit time.Duration) Pool { return g.view(limit, g.permits) }

// Retry is for all other transactions: work that is tried again and again while a
// row stays locked, sweeps, and what operators do. They share half of the permits.
func (g *Gate) Retry(limit time.Duration) Pool { return g.view(limit, g.retries, g.permits) }

// view bounds lock waits from the first statement on, in the same round trip.
func (g *Gate) view(limit time.Duration, permits ...*semaphore.Weighted) Pool {
	begin := "begin"
	if limit > 0 {
		begin = fmt.Sprintf("begin; set local lock_timeout = %d", max(limit.Milliseconds(), 1)) // 0 would be no limit
	}
	return &gatedPool{g.pool, g, begin, permits}
}

// gatedPool is a pool whose transactions need one of each of the permits.
type gatedPool struct {
	*pgxpool.Pool
	gate    *Gate
	begin   string
	permits []*semaphore.Weighted
}

// Begin implements Beginner. It returns ErrCrowded when there is no permit in time.
func (d *gatedPool) Begin(ctx context.Context) (pgx.Tx, error) {
	held, err := d.enter(ctx)
	t := &endingTx{over: sync.OnceFunc(func() { // a rollback may follow a commit
		for _, one := range d.permits[:held] {
			one.Release(1)
		}
	})}
	if err == nil {
		t.Tx, err = d.BeginTx(ctx, pgx.TxOptions{BeginQuery: d.begin})
	}
	if err != nil {
		t.over()
		return nil, err
	}
	return t, nil
}

// enter waits for permits, and returns how many it has got.
func (d *gatedPool) enter(ctx context.Context) (held int, err error) {
	defer d.gate.metrics.wait(&err)()
	bounded, cancel := context.WithTimeout(ctx, d.gate.timeout)
	defer cancel()
	for held = range d.permits {
		if d.permits[held].Acquire(bounded, 1) != nil {
			return held, cmp.Or(ctx.Err(), ErrCrowded)
		}
	}
	return len(d.permits), nil
}
