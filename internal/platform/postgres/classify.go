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
// cause: the same statement may well succeed in a moment.
//
// statement_timeout (57014) is among them, although a statement can also be slow
// by its own doing. Every statement here asks an index for a bounded number of
// rows, so one that takes ten seconds meets a server that is overloaded, or a
// disk that hangs. Half a batch would not be quicker there: a batch of 256 that
// is tried in halves, down to one by one, is 511 statements for a server that
// cannot do one; and then each of its jobs would have failed by itself, and be
// given up for good after a few such minutes. A batch that is tried again whole
// waits the trouble out.
var transientStates = []string{
	"08",    // connection exceptions
	"25006", // read-only transaction: we talk to a standby after a failover
	"25P03", // idle-in-transaction timeout: we were paused, and our transaction is gone
	"40",    // serialization failure, deadlock
	"53",    // insufficient resources
	"55P03", // lock not available: lock_timeout
	"57",    // operator intervention: cancelled, shut down, starting up, statement_timeout
}

// IsTransient tells whether err is transient: a lost connection, a
// timeout, a deadlock, a restart. Such a fault says nothing about the work; it is
// tried again and never counted against a job.
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
		errors.Is(err, puddle.ErrClosedPool) || isClosedConnection(err)
}

// IsLockTimeout tells whether err says that a lock could not be had within
// lock_timeout.
func IsLockTimeout(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// isClosedConnection recognises pgx's own error for a connection that died
// under a statement; pgconn exports neither a value nor a type for it, only the
// fact that nothing was sent.
func isClosedConnection(err error) bool { return pgconn.SafeToRetry(err) }

// NothingSent tells whether err proves that the server saw nothing of the
// statement, so that it can be sent again whatever it does.
func NothingSent(err error) bool { return pgconn.SafeToRetry(err) }
