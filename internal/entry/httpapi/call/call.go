package call

import (
	"context"
	"crypto/sha256"
	"net"

	"triprize/internal/platform/httpconn"
)

// Call is what the guard knows about a request when its handler runs.
type Call struct {
	Caller
	Key         string            // the idempotency key, without quotes
	Fingerprint [sha256.Size]byte // distinguishes different requests with the same key
	Prefer      string            // the Prefer header
	WantsCSV    bool              // it accepts text/csv rather than JSON
	Trace       string            // the trace that the request is in (W3C Trace Context), as an id; empty: none
	Connection  net.Conn
}

// WhilePresent returns a context that ends with ctx, and when the client closes its
// connection. It is for requests that only wait, and whose connection nobody reads
// meanwhile. Call leave when the wait is over.
func (c *Call) WhilePresent(ctx context.Context) (present context.Context, leave func()) {
	present, cancel := context.WithCancel(ctx)
	connection, ok := c.Connection.(*httpconn.Conn)
	if !ok {
		return present, cancel
	}
	stop := connection.Watch(cancel)
	return present, func() { stop(); cancel() }
}

type callKey struct{}

// With returns a context with the call, for its handler.
func With(ctx context.Context, c *Call) context.Context { return context.WithValue(ctx, callKey{}, c) }

// Of returns the call that the guard let through. Without the guard it panics, and
// nothing is done.
func Of(ctx context.Context) *Call {
	return ctx.Value(callKey{}).(*Call) //nolint:forcetypeassert // mount puts the guard before every operation
}
