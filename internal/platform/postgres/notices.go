package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OnNotice calls heard with the detail of each notice with this message that a transaction of the pool
// has raised, once the transaction is over. So a trigger tells the process what its commit has made
// due, without a round trip, and without the lock that all commits with a NOTIFY share. A
// transaction that was rolled back may be heard of too; one whose connection broke is not. heard must not
// wait: a statement's caller waits for it. There is one heard for a pool. It panics for a pool that is not from [Open].
func OnNotice(pool *pgxpool.Pool, message string, heard func(detail string)) {
	tracers, _ := pool.Config().ConnConfig.Tracer.(*multitracer.Tracer)
	if tracers != nil {
		for _, tracer := range tracers.QueryTracers {
			if n, ok := tracer.(*notices); ok {
				n.heard.Store(&subscriber{message, heard})
				return
			}
		}
	}
	panic("postgres.OnNotice: the pool is not from Open, and would say nothing")
}

type subscriber struct {
	message string
	heard   func(detail string)
}

// notices keeps the notices of each connection until its transaction is over. pgx tells a tracer
// of the end of every statement.
type notices struct{ heard atomic.Pointer[subscriber] }

// noticesKey is where a connection has them.
const noticesKey = "triprize.notices"

func (n *notices) raised(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if s := n.heard.Load(); s != nil && notice.Message == s.message {
		kept, _ := conn.CustomData()[noticesKey].([]string)
		conn.CustomData()[noticesKey] = append(kept, notice.Detail)
	}
}

func (n *notices) ended(conn *pgx.Conn) {
	const idle = 'I'
	s, pg := n.heard.Load(), conn.PgConn()
	if s == nil || pg.TxStatus() != idle {
		return
	}
	kept, _ := pg.CustomData()[noticesKey].([]string)
	if len(kept) == 0 {
		return
	}
	delete(pg.CustomData(), noticesKey)
	for _, detail := range kept {
		s.heard(detail)
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
