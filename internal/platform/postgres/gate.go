package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"
)

// Gate limits transactions that may wait for locks to three fifths of a pool's connections. However many rows
// are locked, the rest of the pool accepts jobs, serves reads and answers readiness probes. [Gate.Retry]
// transactions may use only half of the permits.
type Gate struct {
	pool             *pgxpool.Pool
	permits, retries *semaphore.Weighted // retries: a subset of permits
	timeout          time.Duration       // of the wait for permits: as for a lock

	rejected prometheus.Counter
	waiting  prometheus.Gauge
	waits    prometheus.Histogram
}

// NewGate returns the Gate of a pool. A process has one Gate.
func NewGate(pool *pgxpool.Pool, registry prometheus.Registerer) *Gate {
	n, metrics := Permits(pool.Config().MaxConns), promauto.With(registry)
	timeout, _ := strconv.ParseInt(pool.Config().ConnConfig.RuntimeParams["lock_timeout"], 10, 64) // Open has set it
	return &Gate{pool: pool, permits: semaphore.NewWeighted(n), retries: semaphore.NewWeighted(max(n/2, 1)), timeout: time.Duration(timeout) * time.Millisecond,
		rejected: metrics.NewCounter(prometheus.CounterOpts{Name: "triprize_postgres_gate_refused_total",
			Help: "Transactions that were rejected because no permit was released in time."}),
		waiting: metrics.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_gate_waiting",
			Help: "Transactions that wait for a permit of the gate."}),
		waits: metrics.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_gate_wait_seconds",
			Help: "Time that transactions waited for a permit of the gate.", Buckets: waitBuckets}),
	}
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
	g, began := d.gate, time.Now()
	g.waiting.Inc()
	defer func() { g.waiting.Dec(); g.waits.Observe(time.Since(began).Seconds()) }()
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	for held = range d.permits {
		if d.permits[held].Acquire(bounded, 1) != nil {
			if ctx.Err() == nil {
				g.rejected.Inc()
			}
			return held, cmp.Or(ctx.Err(), ErrNoPermit)
		}
	}
	return len(d.permits), nil
}
