package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// ErrCrowded means that as many transactions of this process as may do so work on
// rows that can be locked, and that none has ended in time. Nothing was done.
var ErrCrowded = errors.New("postgres: too many transactions wait for locks")

// gateTimeout is how long a transaction waits for its turn at a Gate.
const gateTimeout = 2 * time.Second

// Gate lets transactions that may wait for a lock into a pool: at most three fifths
// of its connections at a time, so that however many rows are locked elsewhere, the
// rest accepts jobs, reads, and tells whether the process is ready. Half of these
// are never for [Gate.Retry] transactions.
type Gate struct {
	pool    *pgxpool.Pool
	permits *semaphore.Weighted
	retries *semaphore.Weighted // of the permits
	timeout time.Duration
	refused prometheus.Counter
	waiting prometheus.Gauge
	waits   prometheus.Histogram
}

// Pool begins transactions, and reads outside of them.
type Pool interface {
	DB
	Beginner
}

// NewGate returns the Gate of a pool. A process has one.
func NewGate(pool *pgxpool.Pool, registry prometheus.Registerer) *Gate {
	permits := Permits(pool.Config().MaxConns)
	g := &Gate{pool: pool, permits: semaphore.NewWeighted(permits), retries: semaphore.NewWeighted(max(permits/2, 1)), timeout: gateTimeout,
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_postgres_gate_refused_total",
			Help: "Transactions that were not begun, because too many others waited for locks."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_gate_waiting",
			Help: "Transactions that may wait for locks, and wait for their turn to begin."}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_gate_wait_seconds",
			Help: "How long transactions that may wait for locks have waited for their turn to begin.", Buckets: waitBuckets}),
	}
	registry.MustRegister(g.refused, g.waiting, g.waits)
	return g
}

// Permits is how many of so many connections are for transactions that may wait for
// locks.
func Permits(connections int32) int64 { return int64(max(connections*3/5, 1)) }

// Pool returns the pool, for statements that never wait for a lock.
func (g *Gate) Pool() *pgxpool.Pool { return g.pool }

// FirstTry is for transactions that wait for a locked row only once: work on what is not
// known to be locked. limit bounds each wait for a lock, instead of
// postgres.lock_timeout; 0: it does not.
func (g *Gate) FirstTry(limit time.Duration) Pool {
	return &gatedPool{Pool: g.pool, gate: g, begin: beginQuery(limit)}
}

// Retry is for all other transactions: work that is tried again and again while a
// row stays locked, sweeps, and what operators do. They share half of the permits.
func (g *Gate) Retry(limit time.Duration) Pool {
	return &gatedPool{Pool: g.pool, gate: g, begin: beginQuery(limit), retry: true}
}

// beginQuery bounds lock waits from the first statement on, in the same round trip.
func beginQuery(limit time.Duration) string {
	if limit == 0 {
		return "begin"
	}
	return fmt.Sprintf("begin; set local lock_timeout = %d", max(limit.Milliseconds(), 1)) // 0 would be no limit
}

// gatedPool is a pool whose transactions pass the gate.
type gatedPool struct {
	*pgxpool.Pool
	gate  *Gate
	begin string
	retry bool
}

// Begin implements Beginner. It returns ErrCrowded when there is no permit in time.
func (d *gatedPool) Begin(ctx context.Context) (pgx.Tx, error) {
	leave, err := d.gate.enter(ctx, d.retry)
	if err != nil {
		return nil, err
	}
	tx, err := d.BeginTx(ctx, pgx.TxOptions{BeginQuery: d.begin})
	if err != nil {
		leave()
		return nil, err
	}
	return &gatedTx{Tx: tx, leave: leave}, nil
}

// enter waits for a permit.
func (g *Gate) enter(ctx context.Context, retry bool) (leave func(), err error) {
	g.waiting.Inc()
	began := time.Now()
	defer func() {
		g.waiting.Dec()
		g.waits.Observe(time.Since(began).Seconds())
	}()
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if retry {
		if err := g.take(ctx, bounded, g.retries); err != nil {
			return nil, err
		}
	}
	if err := g.take(ctx, bounded, g.permits); err != nil {
		if retry {
			g.retries.Release(1)
		}
		return nil, err
	}
	return func() {
		g.permits.Release(1)
		if retry {
			g.retries.Release(1)
		}
	}, nil
}

func (g *Gate) take(ctx, bounded context.Context, permits *semaphore.Weighted) error {
	err := permits.Acquire(bounded, 1)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	g.refused.Inc()
	return ErrCrowded
}

// gatedTx is a transaction that gives its permit back when it ends.
type gatedTx struct {
	pgx.Tx
	leave func()
}

// Commit implements pgx.Tx.
func (t *gatedTx) Commit(ctx context.Context) error {
	defer t.release()
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *gatedTx) Rollback(ctx context.Context) error {
	defer t.release()
	return t.Tx.Rollback(ctx)
}

// release gives the permit back, once: a rollback may follow a commit.
func (t *gatedTx) release() {
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}

// IsPutOff tells whether err means that nothing was done because rows are locked:
// the same work can be tried again.
func IsPutOff(err error) bool { return IsLockTimeout(err) || errors.Is(err, ErrCrowded) }

// putOffBackoff is how long work waits before it is tried again.
const putOffBackoff = 100 * time.Millisecond

// Persist does work again and again while rows that it needs stay locked, until ctx
// ends; it then returns why. Between two attempts the work has no connection.
func Persist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !IsPutOff(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(putOffBackoff):
		}
	}
}
