package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// waitBuckets are for waits and transactions: from 1 ms to 8 s.
var waitBuckets = prometheus.ExponentialBuckets(.001, 2, 14)

// Metrics measures the pools of a process, as a tracer of each: see [Open].
type Metrics struct {
	acquire             prometheus.Histogram
	waiting             prometheus.Gauge
	rows                map[string]prometheus.Observer // by table; "other" is for the rest
	duration            *prometheus.HistogramVec       // by Transaction, like the next two
	timeouts, deadlocks *prometheus.CounterVec
}

// NewMetrics returns the Metrics of a process.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	auto, by := promauto.With(registry), []string{"transaction"}
	m := &Metrics{rows: make(map[string]prometheus.Observer),
		acquire: auto.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_acquire_wait_seconds",
			Help: "Time to acquire a connection from a pool, or to fail.", Buckets: waitBuckets}),
		waiting: auto.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_connections_waiting",
			Help: "Callers that wait until another one releases a connection. More than 0 for long means that the pool is exhausted."}),
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_postgres_transaction_duration_seconds",
			Help: "Duration of transactions, by their purpose.", Buckets: waitBuckets}, by),
		timeouts: auto.NewCounterVec(prometheus.CounterOpts{Name: "triprize_postgres_lock_timeouts_total",
			Help: "Statements that timed out waiting for a locked row, by the purpose of their transaction."}, by),
		deadlocks: auto.NewCounterVec(prometheus.CounterOpts{Name: "triprize_postgres_deadlocks_total",
			Help: "Statements that Postgres aborted because of a deadlock, by the purpose of their transaction. Should stay 0."}, by),
	}
	locks := auto.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_postgres_lock_wait_seconds",
		Help: "Duration of the round trips that lock rows, including waits for other transactions, by the table of the rows.", Buckets: waitBuckets}, []string{"rows"})
	for _, rows := range []string{"campaigns", "wallets", "payments", otherRows} {
		m.rows[rows] = locks.WithLabelValues(rows)
	}
	for _, kind := range transactions {
		m.duration.WithLabelValues(string(kind))
		m.timeouts.WithLabelValues(string(kind))
		m.deadlocks.WithLabelValues(string(kind))
	}
	return m
}

const otherRows = "other"

// lockWaitOf returns the histogram for a statement that locks rows, or nil for any other one. A statement
// that skips locked rows does not wait.
func (m *Metrics) lockWaitOf(sql string) prometheus.Observer {
	before, after, found := strings.Cut(sql, " FOR NO KEY UPDATE")
	if !found {
		before, after, found = strings.Cut(sql, " FOR UPDATE")
	}
	if !found || strings.Contains(after, "SKIP LOCKED") {
		return nil
	}
	_, table, _ := strings.Cut(before, "FROM ")
	table, _, _ = strings.Cut(table, " ")
	if rows, ok := m.rows[table]; ok {
		return rows
	}
	return m.rows[otherRows]
}

// The keys of measured waits in a context.
type (
	lockKey    struct{}
	acquireKey struct{}
)

type lockWait struct {
	since time.Time
	rows  prometheus.Observer
}

type acquireWait struct {
	since time.Time
	full  bool // the pool has no free connection
}

// TraceQueryStart implements pgx.QueryTracer.
func (m *Metrics) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if rows := m.lockWaitOf(data.SQL); rows != nil {
		return context.WithValue(ctx, lockKey{}, lockWait{time.Now(), rows})
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *Metrics) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	m.queryEnded(ctx, conn.PgConn(), data.Err)
}

// TraceBatchStart implements pgx.BatchTracer. The server answers a batch as a whole, so its duration is the
// wait for locks. A batch outside of a transaction is a transaction itself.
func (m *Metrics) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	begin(ctx, conn.PgConn())
	for _, query := range data.Batch.QueuedQueries {
		if rows := m.lockWaitOf(query.SQL); rows != nil {
			return context.WithValue(ctx, lockKey{}, lockWait{time.Now(), rows})
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (m *Metrics) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (m *Metrics) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	m.queryEnded(ctx, conn.PgConn(), data.Err)
}

// TraceAcquireStart implements pgxpool.AcquireTracer. A caller counts as waiting only if the pool is full, and
// not while a free connection is probed or a new one is opened.
func (m *Metrics) TraceAcquireStart(ctx context.Context, pool *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	stat := pool.Stat()
	full := stat.AcquiredConns()+stat.ConstructingConns() >= stat.MaxConns()
	if full {
		m.waiting.Inc()
	}
	return context.WithValue(ctx, acquireKey{}, acquireWait{time.Now(), full})
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (m *Metrics) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	wait, _ := ctx.Value(acquireKey{}).(acquireWait)
	m.acquire.Observe(time.Since(wait.since).Seconds())
	if wait.full {
		m.waiting.Dec()
	}
}

// queryEnded records waits, lock timeouts, deadlocks, and the begin or end of the transaction.
func (m *Metrics) queryEnded(ctx context.Context, pg *pgconn.PgConn, err error) {
	if wait, ok := ctx.Value(lockKey{}).(lockWait); ok {
		wait.rows.Observe(time.Since(wait.since).Seconds())
	}
	const idle = 'I'
	if pg.TxStatus() != idle && !pg.IsClosed() {
		begin(ctx, pg)
	} else if open, ok := pg.CustomData()[openKey].(*openTransaction); ok {
		m.duration.WithLabelValues(open.kind).Observe(time.Since(open.since).Seconds())
		delete(pg.CustomData(), openKey)
	}
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch failed.Code {
		case lockNotAvailable:
			m.timeouts.WithLabelValues(kindOf(ctx)).Inc()
		case deadlockDetected:
			m.deadlocks.WithLabelValues(kindOf(ctx)).Inc()
		}
	}
}

// openTransaction is the open transaction of a connection.
type openTransaction struct {
	since time.Time
	kind  string
}

// openKey is its key in the custom data of a connection.
const openKey = "triprize.transaction"

// begin records the begin of a transaction once.
func begin(ctx context.Context, pg *pgconn.PgConn) {
	if of := pg.CustomData(); of[openKey] == nil {
		of[openKey] = &openTransaction{time.Now(), kindOf(ctx)}
	}
}

// Transaction is the purpose of a transaction, a label of metrics.
type Transaction string

// The kinds of transactions.
const (
	TxAccept       Transaction = "accept" // of jobs, over HTTP
	TxPurchase     Transaction = "purchase"
	TxCancellation Transaction = "cancellation"
	TxDraw         Transaction = "draw"
	TxCampaign     Transaction = "campaign"
	TxHold         Transaction = "hold"
	TxWallet       Transaction = "wallet"
	TxPayment      Transaction = "payment"
	TxRefund       Transaction = "refund"
	TxWebhook      Transaction = "webhook"
	TxSweep        Transaction = "sweep"
	TxOther        Transaction = "other"
)

var transactions = []Transaction{TxAccept, TxPurchase, TxCancellation, TxDraw, TxCampaign, TxHold, TxWallet, TxPayment, TxRefund, TxWebhook, TxSweep, TxOther}

type transactionKey struct{}

// As returns a context for transactions with a purpose.
func As(ctx context.Context, kind Transaction) context.Context {
	return context.WithValue(ctx, transactionKey{}, kind)
}

func kindOf(ctx context.Context) string {
	if kind, ok := ctx.Value(transactionKey{}).(Transaction); ok {
		return string(kind)
	}
	return string(TxOther)
}
