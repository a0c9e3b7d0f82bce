package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The delays between two probes of Await.
const (
	firstProbeDelay   = 100 * time.Millisecond
	longestProbeDelay = time.Second
)

// Await calls probe until it returns nil: a server may be starting or recovering. It calls notify after each
// failure. It returns the last error after limit (0: after the first failure) or when ctx ends, and at once
// if the server rejects the user or the password or the error is permanent (nil: none is).
func Await(ctx context.Context, limit time.Duration, probe func(ctx context.Context) error, permanent error, notify func(error)) error {
	if limit == 0 {
		return probe(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for delay := firstProbeDelay; ; delay = min(2*delay, longestProbeDelay) {
		err := probe(bounded)
		if err == nil || isPermanent(err, permanent) {
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

// isPermanent reports whether a retry cannot help: the server rejects the user or the password, or err is
// permanent.
func isPermanent(err, permanent error) bool {
	if permanent != nil && errors.Is(err, permanent) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(pg.Code, "28")
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
