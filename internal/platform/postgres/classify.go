package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// transientStates are the SQLSTATE prefixes of faults that the statement did not cause: the same statement
// may succeed a moment later.
//
// They include statement_timeout (57014), although a statement may be slow itself. Every statement here reads
// a bounded number of rows by an index, so if one takes ten seconds, the server is overloaded or its disk
// hangs. Splitting a batch would not help: a batch of 256 in halves, down to single items, makes 511
// statements for a server that cannot run one. Each job would then count a failure and fail for good after a
// few minutes. A batch that is retried as a whole just waits until the server recovers.
var transientStates = []string{
	"08", // connection exceptions
	readOnly,
	"25P03", // idle-in-transaction timeout: this process was paused
	"40",    // serialization failure, deadlock
	"53",    // insufficient resources
	lockNotAvailable,
	"57", // operator intervention: cancelled, shut down, starting up, statement_timeout
}

const (
	readOnly         = "25006" // connected to a standby after a failover; the connection is closed, so that the next may be to the primary
	lockNotAvailable = "55P03" // lock_timeout
	deadlockDetected = "40P01"
	undefinedTable   = "42P01"
)

// IsTransient reports whether err is transient: a lost connection, a timeout, a deadlock, a restart. The work
// is retried, and the attempt does not count as failed.
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
	_, committing := errors.AsType[commitError](err)
	_, network := errors.AsType[net.Error](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return committing || network || connecting || pgconn.Timeout(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, puddle.ErrClosedPool) || errors.Is(err, ErrNoPermit) || errors.Is(err, ErrAnotherPrimary) || NothingSent(err)
}

// IsTooSlow reports whether a statement took longer than statement_timeout, or was cancelled by hand.
func IsTooSlow(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "57014"
}

// IsLockTimeout reports whether a lock was not released within lock_timeout.
func IsLockTimeout(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == lockNotAvailable
}

// ErrNoPermit means that no permit of a [Gate] was released in time. Nothing was done.
var ErrNoPermit = errors.New("postgres: too many transactions wait for locks")

// IsLocked reports whether nothing was done because rows are locked, so that the work can be retried.
func IsLocked(err error) bool { return IsLockTimeout(err) || errors.Is(err, ErrNoPermit) }

// NothingSent reports whether err proves that the statement was not sent, so that any statement can be sent
// again. pgx exports only this check for a connection that was closed before.
func NothingSent(err error) bool { return pgconn.SafeToRetry(err) }

// HadNoEffect reports whether err proves that a statement changed nothing: it was not sent, or the server
// returned an error.
func HadNoEffect(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return answered || NothingSent(err)
}

// The delays between two probes of Await.
const (
	firstProbeDelay   = 100 * time.Millisecond
	longestProbeDelay = time.Second
)

// Await calls probe until it returns nil: a server may be starting or recovering. It calls notify after each
// failure. It returns the last error after limit (0: after the first failure) or when ctx ends, and at once
// if the server rejects the user or the password.
func Await(ctx context.Context, limit time.Duration, probe func(ctx context.Context) error, notify func(error)) error {
	if limit == 0 {
		return probe(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for delay := firstProbeDelay; ; delay = min(2*delay, longestProbeDelay) {
		err := probe(bounded)
		if pg, ok := errors.AsType[*pgconn.PgError](err); err == nil || ok && strings.HasPrefix(pg.Code, "28") {
			return err
		}
		if bounded.Err() == nil || last == nil { // after the limit the error before is more useful
			last = err
			notify(err)
		}
		select {
		case <-time.After(delay):
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("postgres is not ready after %s: %w", limit, last)
		}
	}
}

// lockedBackoff is the pause before a retry of RetryLocked.
const lockedBackoff = 100 * time.Millisecond

// RetryLocked retries do while its rows are locked, until ctx ends, and returns the last error. Between two
// attempts do holds no connection.
func RetryLocked(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !IsLocked(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lockedBackoff):
		}
	}
}
