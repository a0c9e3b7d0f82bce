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

// surroundings are the SQLSTATE prefixes of faults that the statement did not
// cause: the same statement may well succeed in a moment.
var surroundings = []string{
	"08",    // connection exceptions
	"25006", // read-only transaction: we talk to a standby after a failover
	"25P03", // idle-in-transaction timeout: we were paused, and our transaction is gone
	"40",    // serialization failure, deadlock
	"53",    // insufficient resources
	"55P03", // lock not available: lock_timeout
	"57",    // operator intervention: cancelled, shut down, starting up, statement_timeout
}

// IsSurroundings tells whether err is a fault of the surroundings: connection,
// timeout, deadlock, restart. Such a fault says nothing about the work; it is
// tried again and never counted against a job.
func IsSurroundings(err error) bool {
	if err == nil {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, prefix := range surroundings {
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

// isClosedConnection recognises pgx's own error for a connection that died
// under a statement; pgconn exports neither a value nor a type for it, only the
// fact that nothing was sent.
func isClosedConnection(err error) bool { return pgconn.SafeToRetry(err) }

// NothingSent tells whether err proves that the server saw nothing of the
// statement, so that it can be sent again whatever it does.
func NothingSent(err error) bool { return pgconn.SafeToRetry(err) }

// IsUniqueViolation tells whether err is the violation of the named unique constraint.
func IsUniqueViolation(err error, constraint string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" && pg.ConstraintName == constraint
}
