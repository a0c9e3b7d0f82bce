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

// Gate limits transactions that may wait for locks to three fifths of a pool's connections. However many rows
// are locked, the rest of the pool accepts jobs, serves reads and answers readiness probes. [Gate.Retry]
// transactions may use only half of the permits.
type Gate struct {
	pool             *pgxpool.Pool
	permits, retries *semaphore.Weighted // retries: a subset of permits
	timeout          time.Duration       // of the wait for permits
	metrics          *gateMetrics
}

// NewGate returns the Gate of a pool. A process has one Gate.
func NewGate(pool *pgxpool.Pool, registry prometheus.Registerer) *Gate {
	n := Permits(pool.Config().MaxConns)
	return &Gate{pool: pool, permits: semaphore.NewWeighted(n), retries: semaphore.NewWeighted(max(n/2, 1)), timeout: 2 * time.Second, metrics: newGateMetrics(registry)}
}

// Permits returns how many of a pool's connections transactions that wait for locks may use.
func Permits(connections int32) int64 { return int64(max(connections*3/5, 1)) }

// Pool returns the pool, for statements that never wait for a lock.
func (g *Gate) Pool() *pgxpool.Pool { return g.pool }

// FirstTry is for transactions on rows that are not known to be locked. limit replaces the lock timeout; 0
// keeps it.
func (g *Gate) FirstTry(limit time.Duration) Pool { return g.view(limit, g.permits) }

// Retry is for all other transactions: retries while a row is locked, sweeps and operators' commands.
func (g *Gate) Retry(limit time.Duration) Pool { return g.view(limit, g.retries, g.permits) }

// view sets the lock timeout in the round trip of BEGIN.
func (g *Gate) view(limit time.Duration, permits ...*semaphore.Weighted) Pool {
	begin := "begin"
	if limit > 0 {
		begin = fmt.Sprintf("begin; set local lock_timeout = %d", max(limit.Milliseconds(), 1)) // 0 would be no limit
	}
	return &gatedPool{g.pool, g, begin, permits}
}

// gatedPool is a pool whose transactions need one permit of each semaphore.
type gatedPool struct {
	*pgxpool.Pool
	gate    *Gate
	begin   string
	permits []*semaphore.Weighted
}

// Begin implements Beginner. It returns ErrNoPermit if no permit is released in time.
func (d *gatedPool) Begin(ctx context.Context) (pgx.Tx, error) {
	held, err := d.acquire(ctx)
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

// acquire waits for permits and returns how many it acquired.
func (d *gatedPool) acquire(ctx context.Context) (held int, err error) {
	defer d.gate.metrics.wait(&err)()
	bounded, cancel := context.WithTimeout(ctx, d.gate.timeout)
	defer cancel()
	for held = range d.permits {
		if d.permits[held].Acquire(bounded, 1) != nil {
			return held, cmp.Or(ctx.Err(), ErrNoPermit)
		}
	}
	return len(d.permits), nil
}
