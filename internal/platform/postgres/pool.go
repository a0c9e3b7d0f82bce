package postgres

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

// DB runs statements; pools and transactions implement it.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// userTimeout is how long sent data may stay unacknowledged before the connection is closed.
const userTimeout = 10 * time.Second

// Open returns a pool whose sessions have the timeouts of settings, and plans that need no statistics. It does
// not connect: an error means that a setting is invalid. name is the application_name of the sessions. tracers
// trace every statement: [Metrics] is one.
func Open(ctx context.Context, settings config.Postgres, name string, tracers ...pgx.QueryTracer) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(settings.URL)
	if err != nil {
		return nil, errors.New("postgres.Open: setting postgres.url is not a connection string") // err repeats the password
	}
	cfg.MaxConns = settings.MaxConnections
	cfg.MaxConnIdleTime = 30 * time.Second
	cfg.ConnConfig.ConnectTimeout = cmp.Or(settings.ConnectTimeout, 5*time.Second)
	cfg.ConnConfig.DialFunc = dialer(userTimeout).DialContext
	listener := new(notices)
	cfg.ConnConfig.Tracer, cfg.ConnConfig.OnNotice = multitracer.New(append(tracers, listener)...), listener.raised
	session := cfg.ConnConfig.RuntimeParams
	session["application_name"] = name
	session["statement_timeout"] = milliseconds(cmp.Or(settings.StatementTimeout, 10*time.Second))
	session["lock_timeout"] = milliseconds(cmp.Or(settings.LockTimeout, 3*time.Second))
	session["idle_in_transaction_session_timeout"] = milliseconds(cmp.Or(settings.IdleInTransactionTimeout, 5*time.Second)) // then it is aborted, and its locks are released
	session["tcp_user_timeout"] = milliseconds(userTimeout)
	session["tcp_keepalives_idle"] = seconds(keepaliveIdle) // the tcp_ parameters are for the server's end of the connection
	session["tcp_keepalives_interval"] = seconds(keepaliveInterval)
	session["timezone"] = "UTC"
	session["default_transaction_isolation"] = "read committed"
	session["client_min_messages"] = "notice" // see OnNotice
	maps.Copy(session, byIndex)
	cfg.PrepareConn = planAnew(planTTL)
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}})
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID,
			Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}}) // answers show UTC, in any zone of the process
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	return pool, fault.At(err, "postgres.Open")
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
func seconds(d time.Duration) string      { return strconv.FormatInt(int64(d/time.Second), 10) }

// Beginner starts transactions; a pool does.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Pool begins transactions, and reads outside of them.
type Pool interface {
	DB
	Beginner
}

// InTx runs do in one READ COMMITTED transaction and commits it if do returns nil; otherwise it rolls back. If
// the commit fails the outcome is unknown, so do must be safe to repeat.
func InTx(ctx context.Context, db Beginner, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, do)
}

// endingTx is a transaction that calls over when it ends.
type endingTx struct {
	pgx.Tx
	over func()
}

// Commit implements pgx.Tx.
func (t *endingTx) Commit(ctx context.Context) error {
	defer t.over()
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *endingTx) Rollback(ctx context.Context) error {
	defer t.over()
	return t.Tx.Rollback(ctx)
}

// Both ends of an idle connection send keep-alive probes. Together with the user timeout they let each end
// detect in time that the other is gone: the client waits for an answer, and the server holds its locks.
const (
	keepaliveIdle     = 5 * time.Second
	keepaliveInterval = 2 * time.Second
)

// dialer returns the dialer of the client.
func dialer(userTimeout time.Duration) *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval},
		Control:         setUserTimeout(userTimeout),
	}
}
