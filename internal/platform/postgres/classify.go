package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// transientStates are the SQLSTATE prefixes of faults that the statement did not
// cause: the same statement may succeed a moment later.
//
// statement_timeout (57014) is one of them, although a statement can also be slow
// by itself. Every statement here reads a bounded number of rows by an index, so
// when one takes ten seconds, the server is overloaded or its disk hangs. Splitting
// a batch would not help: a batch of 256 that is tried in halves, down to single
// items, makes 511 statements for a server that cannot do one. Each of its jobs
// would then count a failure of its own and be given up after a few such minutes.
// A batch that is tried again as a whole just waits until the server recovers.
var transientStates = []string{
	"08",    // connection exceptions
	"25006", // read-only transaction: we talk to a standby after a failover
	"25P03", // idle-in-transaction timeout: we were paused, and our transaction was aborted
	"40",    // serialization failure, deadlock
	"53",    // insufficient resources
	lockNotAvailable,
	"57", // operator intervention: cancelled, shut down, starting up, statement_timeout
}

const (
	lockNotAvailable = "55P03" // lock_timeout
	deadlockDetected = "40P01"
)

// IsTransient tells whether err is transient: a lost connection, a timeout, a
// deadlock, a restart. Such a fault says nothing about the work, which is tried
// again; it never counts as a failed attempt of a job.
func IsTransient(err error) bool {
	if err == nil {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, prefix := range transientStates {
			if strings.HasPrefix(pg.Code, prefix) {
				return true
			}
		}
		return false
	}
	_, network := errors.AsType[net.Error](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return network || connecting || pgconn.Timeout(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, puddle.ErrClosedPool) || errors.Is(err, ErrCrowded) || isClosedConnection(err)
}

// IsLockTimeout tells whether err means that a lock was not free within
// lock_timeout.
func IsLockTimeout(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == lockNotAvailable
}

// ErrCrowded means that as many transactions of this process as may do so work on
// rows that can be locked, and that none has ended in time. Nothing was done: see [Gate].
var ErrCrowded = errors.New("postgres: too many transactions wait for locks")

// IsPutOff tells whether err means that nothing was done because rows are locked:
// the same work can be tried again.
func IsPutOff(err error) bool { return IsLockTimeout(err) || errors.Is(err, ErrCrowded) }

// isClosedConnection recognises pgx's own error for a connection that was closed
// before a statement was sent. pgconn exports neither a value nor a type for it,
// only this check.
func isClosedConnection(err error) bool { return pgconn.SafeToRetry(err) }

// NothingSent tells whether err proves that the statement was not sent, so that
// any statement can be sent again.
func NothingSent(err error) bool { return pgconn.SafeToRetry(err) }

// HadNoEffect tells whether err proves that a statement changed nothing: it was not
// sent, or the server itself answered with an error.
func HadNoEffect(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return answered || NothingSent(err)
}
