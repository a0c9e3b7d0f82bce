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

// Metrics measures the pools of a process: as a tracer of each of them, see [Open].
type Metrics struct {
	acquire      prometheus.Histogram
	waiting      prometheus.Gauge
	rows         map[string]prometheus.Observer // by table; "other" is for the rest
	transactions map[Transaction]*measures
}

// measures are those of one kind of transactions.
type measures struct {
	duration            prometheus.Observer
	timeouts, deadlocks prometheus.Counter
}

// NewMetrics returns the Metrics of a process.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{rows: make(map[string]prometheus.Observer), transactions: make(map[Transaction]*measures),
		acquire: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_acquire_wait_seconds",
			Help: "Time from asking a pool for a connection until it is there, or is not to be had.", Buckets: waitBuckets}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_connections_waiting",
			Help: "Who waits until another gives a connection back. More than 0 for long means that the pool is exhausted."}),
	}
	locks := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_postgres_lock_wait_seconds",
		Help: "Duration of the round trips that lock rows and wait for those that another transaction has locked, by the table of the rows.", Buckets: waitBuckets}, []string{"rows"})
	for _, rows := range []string{"campaigns", "wallets", "payments", otherRows} {
		m.rows[rows] = locks.WithLabelValues(rows)
	}
	by := []string{"transaction"}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "triprize_postgres_transaction_duration_seconds",
		Help: "Time from the begin of a transaction until it is over, by its purpose.", Buckets: waitBuckets}, by)
	timeouts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_postgres_lock_timeouts_total",
		Help: "Statements that have waited in vain for a locked row, by the purpose of their transaction."}, by)
	deadlocks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_postgres_deadlocks_total",
		Help: "Statements that Postgres has ended because of a deadlock, by the purpose of their transaction. Should stay 0."}, by)
	for _, kind := range transactions {
		m.transactions[kind] = &measures{duration.WithLabelValues(string(kind)), timeouts.WithLabelValues(string(kind)), deadlocks.WithLabelValues(string(kind))}
	}
	registry.MustRegister(m.acquire, m.waiting, locks, duration, timeouts, deadlocks)
	return m
}

const otherRows = "other"

// waitsFor returns where the duration of a statement belongs that locks rows and waits for
// them; nil for any other one. A statement that skips locked rows does not wait.
func (m *Metrics) waitsFor(sql string) prometheus.Observer {
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

// timed is the context of something that is timed.
type timed struct {
	context.Context //nolint:containedctx // it is one

	key   any
	since time.Time
	wait  prometheus.Observer
	full  bool // the pool has no connection that is free
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

// observe ends what is timed under a key, if anything is, and returns it.
func observe(ctx context.Context, key any) *timed {
	t, ok := ctx.Value(key).(*timed)
	if ok {
		t.wait.Observe(time.Since(t.since).Seconds())
	}
	return t
}

// TraceQueryStart implements pgx.QueryTracer.
func (m *Metrics) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if wait := m.waitsFor(data.SQL); wait != nil {
		return &timed{Context: ctx, key: lockWait{}, since: time.Now(), wait: wait}
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *Metrics) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	m.ended(ctx, conn, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer. The server answers a batch as a whole, so the wait for
// locks is that of the batch. A batch outside of a transaction is one.
func (m *Metrics) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	m.begin(ctx, conn.PgConn())
	for _, query := range data.Batch.QueuedQueries {
		if wait := m.waitsFor(query.SQL); wait != nil {
			return &timed{Context: ctx, key: lockWait{}, since: time.Now(), wait: wait}
		}
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (m *Metrics) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (m *Metrics) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	m.ended(ctx, conn, data.Err)
}

// TraceAcquireStart implements pgxpool.AcquireTracer. While a free connection is probed, or one is opened,
// nobody waits for another to give one back: a scrape of an idle process does the first.
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

// ended looks at what the end of a statement says of its locks and its transaction.
func (m *Metrics) ended(ctx context.Context, conn *pgx.Conn, err error) {
	observe(ctx, lockWait{})
	m.watch(ctx, conn)
	if err == nil {
		return
	}
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch failed.Code {
		case lockNotAvailable:
			m.of(ctx).timeouts.Inc()
		case deadlockDetected:
			m.of(ctx).deadlocks.Inc()
		}
	}
}

// underway is the transaction of a connection.
type underway struct {
	since time.Time // zero: there is none
	kind  *measures
}

// underwayKey is where a connection has it.
const underwayKey = "triprize.transaction"

// watch notes the begin and observes the end of a connection's transaction.
func (m *Metrics) watch(ctx context.Context, conn *pgx.Conn) {
	const idle = 'I'
	pg := conn.PgConn()
	over := pg.TxStatus() == idle || pg.IsClosed()
	if !over {
		m.begin(ctx, pg)
		return
	}
	if now, ok := pg.CustomData()[underwayKey].(*underway); ok && !now.since.IsZero() {
		now.kind.duration.Observe(time.Since(now.since).Seconds())
		now.since = time.Time{}
	}
}

// begin notes that a transaction is under way, unless that is known.
func (m *Metrics) begin(ctx context.Context, pg *pgconn.PgConn) {
	now, ok := pg.CustomData()[underwayKey].(*underway)
	if !ok { // the first one of the connection
		now = new(underway)
		pg.CustomData()[underwayKey] = now
	}
	if now.since.IsZero() {
		now.since, now.kind = time.Now(), m.of(ctx)
	}
}

// of returns the measures of the transaction that ctx is for.
func (m *Metrics) of(ctx context.Context) *measures {
	kind, _ := ctx.Value(transactionKey{}).(Transaction)
	if known, ok := m.transactions[kind]; ok {
		return known
	}
	return m.transactions[TxOther]
}

// gateMetrics are those of a Gate.
type gateMetrics struct {
	refused prometheus.Counter
	waiting prometheus.Gauge
	waits   prometheus.Histogram
}

func newGateMetrics(registry prometheus.Registerer) *gateMetrics {
	m := &gateMetrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_postgres_gate_refused_total",
			Help: "Transactions that were not begun, because too many others waited for locks."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_postgres_gate_waiting",
			Help: "Transactions that may wait for locks, and wait for their turn to begin."}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_postgres_gate_wait_seconds",
			Help: "How long transactions that may wait for locks have waited for their turn to begin.", Buckets: waitBuckets}),
	}
	registry.MustRegister(m.refused, m.waiting, m.waits)
	return m
}

// wait measures a wait for permits until it is over with err.
func (m *gateMetrics) wait(err *error) (over func()) {
	m.waiting.Inc()
	began := time.Now()
	return func() {
		m.waiting.Dec()
		m.waits.Observe(time.Since(began).Seconds())
		if errors.Is(*err, ErrCrowded) {
			m.refused.Inc()
		}
	}
}

// Transaction is the purpose of transactions: the label of their metrics.
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

// As returns a context whose transactions count as those of a kind.
func As(ctx context.Context, kind Transaction) context.Context {
	return context.WithValue(ctx, transactionKey{}, kind)
}
