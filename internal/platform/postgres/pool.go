// Package postgres opens the pool, runs transactions, and recognizes transient faults.
//
// A transient fault is a lost connection, a deadlock, or a restart of the server. Its only table is
// timelines, by which it knows a server. Packages that own tables take a [DB] and have their SQL next to the function that needs it.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
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

// Open returns a pool of a process that has no other: see [Servers.Open].
func Open(ctx context.Context, settings config.Postgres, name string, tracers ...pgx.QueryTracer) (*pgxpool.Pool, error) {
	return NewServers(slog.New(slog.DiscardHandler)).Open(ctx, settings, name, tracers...)
}

// The time in which a server must accept a connection. Of several hosts the next is tried then.
const (
	connectTimeout     = 5 * time.Second
	connectTimeoutHost = 2 * time.Second
)

// Open returns a pool whose sessions have the timeouts of settings, and plans that need no statistics. It does
// not connect: an error means that a setting is invalid. name is the application_name of the sessions. tracers
// trace every statement: [Metrics] is one.
func (s *Servers) Open(ctx context.Context, settings config.Postgres, name string, tracers ...pgx.QueryTracer) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(settings.URL)
	if err != nil {
		return nil, errors.New("postgres.Open: setting postgres.url is not a connection string") // err repeats the password
	}
	cfg.MaxConns = settings.MaxConnections
	cfg.MaxConnIdleTime = 30 * time.Second
	timeout := connectTimeout
	if severalHosts(cfg.ConnConfig) {
		timeout = connectTimeoutHost
	}
	cfg.ConnConfig.ConnectTimeout = cmp.Or(settings.ConnectTimeout, cfg.ConnConfig.ConnectTimeout, timeout)
	cfg.ConnConfig.DialFunc = dialer(cfg.ConnConfig.ConnectTimeout)
	cfg.ConnConfig.LookupFunc, cfg.BeforeConnect = s.lookup(cfg.ConnConfig.LookupFunc), s.lastFirst
	cfg.ConnConfig.ValidateConnect = s.validate(cfg.ConnConfig.ValidateConnect)
	onError := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(conn *pgconn.PgConn, failed *pgconn.PgError) bool { // false closes the connection
		return failed.Code != readOnly && onError(conn, failed)
	}
	listener := &notices{logger: s.logger}
	cfg.ConnConfig.Tracer, cfg.ConnConfig.OnNotice = multitracer.New(append(tracers, listener)...), listener.raised
	session := cfg.ConnConfig.RuntimeParams
	session["application_name"] = name
	session["statement_timeout"] = milliseconds(cmp.Or(settings.StatementTimeout, 10*time.Second))
	session["lock_timeout"] = milliseconds(cmp.Or(settings.LockTimeout, 3*time.Second))
	session["idle_in_transaction_session_timeout"] = milliseconds(cmp.Or(settings.IdleInTransactionTimeout, 5*time.Second)) // then it is aborted, and its locks are released
	session["tcp_user_timeout"] = milliseconds(userTimeout)
	session["tcp_keepalives_idle"] = seconds(keepaliveIdle) // the tcp_ parameters are for the server's end of the connection
	session["tcp_keepalives_interval"] = seconds(keepaliveInterval)
	session["idle_session_timeout"] = "0" // the pool closes idle sessions
	session["timezone"] = "UTC"
	session["datestyle"] = "ISO, MDY"
	session["client_encoding"] = "UTF8"
	session["standard_conforming_strings"] = "on"
	session["default_transaction_isolation"] = "read committed"
	session["client_min_messages"] = "notice" // see OnNotice
	maps.Copy(session, byIndex)
	cfg.PrepareConn = planAnew(planTTL, discardTimeout)
	cfg.BeforeClose = s.closed
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		if err := s.opened(conn); err != nil {
			return err
		}
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}})
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID,
			Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}}) // answers show UTC, in any zone of the process
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fault.At(err, "postgres.Open")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = append(s.pools, pool)
	return pool, nil
}

// relied are the start-up parameters that the program relies on, beside byIndex.
var relied = []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "timezone", "datestyle",
	"client_encoding", "standard_conforming_strings", "default_transaction_isolation", "client_min_messages"}

// CheckSession is CheckServer, and returns an error if sessions do not have their start-up parameters: PgBouncer removes
// them in silence.
func CheckSession(ctx context.Context, pool *pgxpool.Pool) error {
	if err := CheckServer(ctx, pool); err != nil {
		return err
	}
	want := pool.Config().ConnConfig.RuntimeParams
	names := slices.Sorted(slices.Values(slices.AppendSeq(relied[:len(relied):len(relied)], maps.Keys(byIndex))))
	var wrong []string
	var name, value string
	err := Scan(ctx, pool, func() {
		if value != want[name] {
			wrong = append(wrong, fmt.Sprintf("ALTER ROLE %s SET %s = '%s';", pgx.Identifier{pool.Config().ConnConfig.User}.Sanitize(), name, want[name]))
		}
	}, []any{&name, &value}, `SELECT lower(name), setting FROM pg_settings WHERE lower(name) = ANY($1) ORDER BY 1`, names)
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("setting postgres.url (TRIPRIZE_POSTGRES_URL): a pooler drops the start-up parameters of sessions. "+
			"Let the role have them, and restart the pooler: %s", strings.Join(wrong, " "))
	}
	return fault.At(err, "postgres.CheckSession")
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
	if tx := Outer(ctx); tx != nil {
		return pgx.BeginFunc(ctx, tx, do)
	}
	committing := false
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		err := do(tx)
		committing = err == nil
		return err
	})
	if committing && err != nil && !errors.Is(err, pgx.ErrTxCommitRollback) {
		return commitError{err}
	}
	return err
}

type outerKey struct{}

// outer is a transaction that others are part of, and what follows its commit.
type outer struct {
	tx    pgx.Tx
	after *[]func()
}

// Join returns a context whose transactions are part of tx: [InTx] makes them savepoints of it. What they do after their
// commit ([AfterCommit]) is added to after: it is done when tx is committed.
func Join(ctx context.Context, tx pgx.Tx, after *[]func()) context.Context {
	return context.WithValue(ctx, outerKey{}, outer{tx, after})
}

// Outer returns the transaction that those of a context are part of; nil: none.
func Outer(ctx context.Context) pgx.Tx {
	o, _ := ctx.Value(outerKey{}).(outer)
	return o.tx
}

// AfterCommit does what follows a commit: now, or after that of the transaction that ctx is part of.
func AfterCommit(ctx context.Context, do func()) {
	if o, ok := ctx.Value(outerKey{}).(outer); ok {
		*o.after = append(*o.after, do)
		return
	}
	do()
}

// commitError is the error of a commit. When its answer is lost, pgx calls it safe to retry, as if it had not been sent.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

// SafeToRetry is what [NothingSent] asks.
func (commitError) SafeToRetry() bool { return false }

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

// A connection on which a statement was given up is closed in the background, and its pool opens no other one in its
// place meanwhile. If its server has vanished, pgx would try for 15 s to cancel the statement and to end the session.
const (
	handshakeTimeout = 2 * time.Second // of TCP; a connection that cancels a statement has as long for the rest
	closeTimeout     = time.Second
)

// dialer dials connections that are closed soon. One whose context outlasts the connect timeout is to cancel a
// statement: pgx waits 15 s for its answer.
func dialer(connectTimeout time.Duration) pgconn.DialFunc {
	d := net.Dialer{
		Timeout:         handshakeTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval},
		Control:         setUserTimeout(userTimeout),
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		deadline, _ := ctx.Deadline()
		cancels := time.Until(deadline) > connectTimeout
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if cancels {
			err = conn.SetDeadline(time.Now().Add(handshakeTimeout))
		}
		return closingConn{conn}, err
	}
}

// closingConn is a connection whose deadlines are at most closeTimeout away. pgx sets none, except to interrupt a read or
// write at once and for the time in which it closes a connection.
type closingConn struct{ net.Conn }

// SetDeadline implements net.Conn.
func (c closingConn) SetDeadline(at time.Time) error {
	if last := time.Now().Add(closeTimeout); at.After(last) {
		at = last
	}
	return c.Conn.SetDeadline(at)
}

// byIndex are the session settings that make Postgres read tables by index.
//
// Every statement here has an index for its rows. Postgres would still scan or hash a whole table that it
// assumes to be small, from old statistics or without any. A table without a suitable index is still scanned.
// Its cost would trigger JIT compilation, which takes longer than any statement here.
var byIndex = map[string]string{"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off", "jit": "off"}

// AllowScans reverts this for the rest of a transaction that reads whole tables.
func AllowScans(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT set_config(name, 'on', true) FROM unnest($1::text[]) AS name`, slices.Collect(maps.Keys(byIndex)))
	return fault.At(err, "postgres.AllowScans")
}

// planTTL is how long a session caches plans. A plan fits the table sizes at the time of planning, and Postgres
// replans only after ANALYZE: on a new database after a minute at the earliest. What a table grows by in five
// seconds is read in milliseconds. Planning all statements of a session takes as long.
const planTTL = 5 * time.Second

// discardTimeout bounds DISCARD PLANS.
const discardTimeout = time.Second

// plannedAt is the key of the time of a session's oldest plans in the custom data of its connection.
const plannedAt = "triprize.plannedAt"

// planAnew returns a hook for connections that are about to be used. It discards a session's plans after ttl.
func planAnew(ttl, timeout time.Duration) func(context.Context, *pgx.Conn) (usable bool, err error) {
	return func(ctx context.Context, conn *pgx.Conn) (usable bool, err error) {
		of := conn.PgConn().CustomData()
		if at, ok := of[plannedAt].(time.Time); ok && time.Since(at) < ttl {
			return true, nil
		} else if ok {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout) // a caller that leaves must not break the connection
			defer cancel()
			if _, err := conn.Exec(ctx, `DISCARD PLANS`, pgx.QueryExecModeSimpleProtocol); err != nil {
				return false, nil // the pool tries another connection
			}
		}
		of[plannedAt] = time.Now()
		return true, nil
	}
}

// uuidCodec copies the 16 bytes of an id. Without it ids are converted to text, which takes 0.2 µs for a read and
// 2.8 µs for a write through a pointer.
type uuidCodec struct{ pgtype.UUIDCodec }

func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case uuid.UUID:
			return encodeUUID{}
		case *uuid.UUID:
			return encodeUUIDPointer{}
		}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type (
	encodeUUID        struct{}
	encodeUUIDPointer struct{}
	scanUUID          struct{}
)

// Encode appends an id.
func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id, _ := value.(uuid.UUID) // a plan is for one type
	return append(buf, id[:]...), nil
}

// Encode appends an id; a nil pointer is null.
func (encodeUUIDPointer) Encode(value any, buf []byte) ([]byte, error) {
	id, _ := value.(*uuid.UUID)
	if id == nil {
		return nil, nil
	}
	return append(buf, id[:]...), nil
}

// Scan reads an id. It rejects null, which needs a pointer to a pointer.
func (scanUUID) Scan(src []byte, target any) error {
	id, ok := target.(*uuid.UUID)
	if !ok || len(src) != len(id) {
		return fmt.Errorf("postgres: %d bytes are no id for %T", len(src), target)
	}
	copy(id[:], src)
	return nil
}
