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
)

// waitBuckets are for waits and transactions: from 1 ms to 8 s.
var waitBuckets = prometheus.ExponentialBuckets(.001, 2, 14)

// Metrics measures the pools of a process, as a tracer of each: see [Open].
type Metrics struct {
	acquire      prometheus.Histogram
	waiting      prometheus.Gauge
	rows         map[string]prometheus.Observer // by table; "other" is for the rest
	transactions map[Transaction]*transactionMetrics
}

// transactionMetrics are the metrics of one kind of transactions.
type transactionMetrics struct {
	duration            prometheus.Observer
	timeouts, deadlocks prometheus.Counter
}

// NewMetrics returns the Metrics of a process.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{rows: make(map[string]prometheus.Observer), transactions: make(map[Transaction]*transactionMetrics),
		acquire: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_acquire_wait_seconds",
			Help: "Time to acquire a connection from a pool, or to fail.", Buckets: waitBuckets}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_connections_waiting",
			Help: "Callers that wait until another one releases a connection. More than 0 for long means that the pool is exhausted."}),
	}
	locks := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_postgres_lock_wait_seconds",
		Help: "Duration of the round trips that lock rows, including waits for other transactions, by the table of the rows.", Buckets: waitBuckets}, []string{"rows"})
	for _, rows := range []string{"campaigns", "wallets", "payments", otherRows} {
		m.rows[rows] = locks.WithLabelValues(rows)
	}
	by := []string{"transaction"}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_postgres_transaction_duration_seconds",
		Help: "Duration of transactions, by their purpose.", Buckets: waitBuckets}, by)
	timeouts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_postgres_lock_timeouts_total",
		Help: "Statements that timed out waiting for a locked row, by the purpose of their transaction."}, by)
	deadlocks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_postgres_deadlocks_total",
		Help: "Statements that Postgres aborted because of a deadlock, by the purpose of their transaction. Should stay 0."}, by)
	for _, kind := range transactions {
		m.transactions[kind] = &transactionMetrics{duration.WithLabelValues(string(kind)), timeouts.WithLabelValues(string(kind)), deadlocks.WithLabelValues(string(kind))}
	}
	registry.MustRegister(m.acquire, m.waiting, locks, duration, timeouts, deadlocks)
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

// timed is the context of a measured wait.
type timed struct {
	context.Context //nolint:containedctx // it is one

	key   any
	since time.Time
	wait  prometheus.Observer
	full  bool // the pool has no free connection
}

// The keys of a timed context.
type (
	lockWait    struct{}
	acquireWait struct{}
)

// Value implements context.Context.
func (t *timed) Value(key any) any {
	if key == t.key {
		return t
	}
	return t.Context.Value(key)
}

// observe ends the measurement with a key, if there is one, and returns it.
func observe(ctx context.Context, key any) *timed {
	t, ok := ctx.Value(key).(*timed)
	if ok {
		t.wait.Observe(time.Since(t.since).Seconds())
	}
	return t
}

// TraceQueryStart implements pgx.QueryTracer.
func (m *Metrics) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if wait := m.lockWaitOf(data.SQL); wait != nil {
		return &timed{Context: ctx, key: lockWait{}, since: time.Now(), wait: wait}
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *Metrics) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	m.queryEnded(ctx, conn, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer. The server answers a batch as a whole, so its duration is the
// wait for locks. A batch outside of a transaction is a transaction itself.
func (m *Metrics) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	m.begin(ctx, conn.PgConn())
	for _, query := range data.Batch.QueuedQueries {
		if wait := m.lockWaitOf(query.SQL); wait != nil {
			return &timed{Context: ctx, key: lockWait{}, since: time.Now(), wait: wait}
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (m *Metrics) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (m *Metrics) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	m.queryEnded(ctx, conn, data.Err)
}

// TraceAcquireStart implements pgxpool.AcquireTracer. A caller counts as waiting only if the pool is full, and
// not while a free connection is probed or a new one is opened.
func (m *Metrics) TraceAcquireStart(ctx context.Context, pool *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	stat := pool.Stat()
	full := stat.AcquiredConns()+stat.ConstructingConns() >= stat.MaxConns()
	if full {
		m.waiting.Inc()
	}
	return &timed{ctx, acquireWait{}, time.Now(), m.acquire, full}
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (m *Metrics) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if t := observe(ctx, acquireWait{}); t != nil && t.full {
		m.waiting.Dec()
	}
}

// queryEnded records lock timeouts, deadlocks and the end of the transaction.
func (m *Metrics) queryEnded(ctx context.Context, conn *pgx.Conn, err error) {
	observe(ctx, lockWait{})
	m.trackTransaction(ctx, conn)
	if err == nil {
		return
	}
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch failed.Code {
		case lockNotAvailable:
			m.metricsOf(ctx).timeouts.Inc()
		case deadlockDetected:
			m.metricsOf(ctx).deadlocks.Inc()
		}
	}
}

// openTransaction is the open transaction of a connection.
type openTransaction struct {
	since time.Time // zero: there is none
	kind  *transactionMetrics
}

// openTransactionKey is its key in the custom data of a connection.
const openTransactionKey = "triprize.transaction"

// trackTransaction records the begin and the end of a connection's transaction.
func (m *Metrics) trackTransaction(ctx context.Context, conn *pgx.Conn) {
	const idle = 'I'
	pg := conn.PgConn()
	over := pg.TxStatus() == idle || pg.IsClosed()
	if !over {
		m.begin(ctx, pg)
		return
	}
	if now, ok := pg.CustomData()[openTransactionKey].(*openTransaction); ok && !now.since.IsZero() {
		now.kind.duration.Observe(time.Since(now.since).Seconds())
		now.since = time.Time{}
	}
}

// begin records the begin of a transaction once.
func (m *Metrics) begin(ctx context.Context, pg *pgconn.PgConn) {
	now, ok := pg.CustomData()[openTransactionKey].(*openTransaction)
	if !ok { // the first one of the connection
		now = new(openTransaction)
		pg.CustomData()[openTransactionKey] = now
	}
	if now.since.IsZero() {
		now.since, now.kind = time.Now(), m.metricsOf(ctx)
	}
}

// metricsOf returns the metrics for the purpose in ctx.
func (m *Metrics) metricsOf(ctx context.Context) *transactionMetrics {
	kind, _ := ctx.Value(transactionKey{}).(Transaction)
	if known, ok := m.transactions[kind]; ok {
		return known
	}
	return m.transactions[TxOther]
}

// gateMetrics are the metrics of a Gate.
type gateMetrics struct {
	rejected prometheus.Counter
	waiting  prometheus.Gauge
	waits    prometheus.Histogram
}

func newGateMetrics(registry prometheus.Registerer) *gateMetrics {
	m := &gateMetrics{
		rejected: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_postgres_gate_refused_total",
			Help: "Transactions that were rejected because no permit was released in time."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_gate_waiting",
			Help: "Transactions that wait for a permit of the gate."}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_gate_wait_seconds",
			Help: "Time that transactions waited for a permit of the gate.", Buckets: waitBuckets}),
	}
	registry.MustRegister(m.rejected, m.waiting, m.waits)
	return m
}

// wait measures a wait for permits; over ends it.
func (m *gateMetrics) wait(err *error) (over func()) {
	m.waiting.Inc()
	began := time.Now()
	return func() {
		m.waiting.Dec()
		m.waits.Observe(time.Since(began).Seconds())
		if errors.Is(*err, ErrNoPermit) {
			m.rejected.Inc()
		}
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
