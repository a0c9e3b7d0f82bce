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

// Await calls probe until it returns nil: a server may be starting, or recovering
// from a crash. It calls notify after each failure. It gives up with the last error
// after limit (0: after the first failure), and when ctx ends. It gives up at once when the
// server refuses the user or the password, and with an error that is hopeless (nil: none).
func Await(ctx context.Context, limit time.Duration, probe func(ctx context.Context) error, hopeless error, notify func(error)) error {
	if limit == 0 {
		return probe(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for delay := firstProbeDelay; ; delay = min(2*delay, longestProbeDelay) {
		err := probe(bounded)
		if err == nil || isRefused(err, hopeless) {
			return err
		}
		if bounded.Err() == nil || last == nil { // the error before says more than "the time is over"
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

// isRefused tells whether waiting does not help: the server refuses the user or the
// password, or err is hopeless.
func isRefused(err, hopeless error) bool {
	if hopeless != nil && errors.Is(err, hopeless) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(pg.Code, "28")
}

// putOffBackoff is how long work waits before it is tried again.
const putOffBackoff = 100 * time.Millisecond

// Persist does work again and again while rows that it needs stay locked, until ctx
// ends; it then returns why. Between two attempts the work has no connection.
func Persist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !IsPutOff(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(putOffBackoff):
		}
	}
}
