package postgres

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OnNotice calls notify with the detail of each notice with this message, after the end of the transaction that
// raised it. So a trigger notifies the process of what a commit made due, without a round trip and without the
// lock that all commits with NOTIFY share. A rolled back transaction may notify too; one whose connection broke
// does not. notify must not block. A pool has one subscriber. OnNotice panics for a pool that is not from [Open].
func OnNotice(pool *pgxpool.Pool, message string, notify func(detail string)) {
	tracers := pool.Config().ConnConfig.Tracer.(*multitracer.Tracer).QueryTracers     //nolint:forcetypeassert // as Open has set it
	tracers[len(tracers)-1].(*notices).subscriber.Store(&subscriber{message, notify}) //nolint:forcetypeassert // the same
}

type subscriber struct {
	message string
	notify  func(detail string)
}

// notices collects the notices of each connection until the end of its transaction.
type notices struct {
	subscriber atomic.Pointer[subscriber]
	logger     *slog.Logger
}

// noticesKey is their key in the custom data of a connection.
const noticesKey = "triprize.notices"

func (n *notices) raised(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if isUnreplicated(notice) {
		n.logger.Warn("postgres: a commit is not known to be on the synchronous standby; its outcome is unknown", "reason", notice.Message)
		cut(conn)
	}
	if s := n.subscriber.Load(); s != nil && notice.Message == s.message {
		details, _ := conn.CustomData()[noticesKey].([]string)
		conn.CustomData()[noticesKey] = append(details, notice.Detail)
	}
}

// isUnreplicated reports whether Postgres has committed without waiting for the synchronous standby any longer, because
// the wait was cancelled, by an operator for example. A session that is terminated meanwhile sends no answer at all.
// Texts are translated; the name of the function that warns is not, and no other warning comes from it.
func isUnreplicated(notice *pgconn.Notice) bool {
	return notice.SeverityUnlocalized == "WARNING" && notice.Code == "01000" && notice.Routine == "SyncRepWaitForLSN"
}

// cut closes a connection before the rest of an answer is read. So whatever has committed (a transaction, a batch, a
// single statement) fails as if the connection had broken: with a transient fault and an unknown outcome.
func cut(conn *pgconn.PgConn) {
	_ = conn.Conn().Close()
	for {
		if _, err := conn.Frontend().Receive(); err != nil { // what was received before
			return
		}
	}
}

func (n *notices) ended(conn *pgx.Conn) {
	const idle = 'I'
	s, pg := n.subscriber.Load(), conn.PgConn()
	if s == nil || pg.TxStatus() != idle {
		return
	}
	details, _ := pg.CustomData()[noticesKey].([]string)
	if len(details) == 0 {
		return
	}
	delete(pg.CustomData(), noticesKey)
	for _, detail := range details {
		s.notify(detail)
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (n *notices) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (n *notices) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	n.ended(conn)
}

// TraceBatchStart implements pgx.BatchTracer.
func (n *notices) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (n *notices) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (n *notices) TraceBatchEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	n.ended(conn)
}
