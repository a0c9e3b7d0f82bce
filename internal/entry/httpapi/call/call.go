package call

import (
	"context"
	"crypto/sha256"
	"net"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/stream"
)

// Call is what the guard knows about a request when its handler runs.
type Call struct {
	Caller
	Key         string            // the idempotency key, without quotes, in the caller's KeyScope
	Fingerprint [sha256.Size]byte // distinguishes different requests with the same key
	Prefer      string            // the Prefer header
	WantsCSV    bool              // it accepts text/csv rather than JSON
	RequestID   string            // its X-Request-ID
	Traceparent string            // the trace that the request is in (W3C Trace Context); empty: none
	Connection  net.Conn
	Watch       func(prefix string, revoked func()) (stop func()) // of keys, see apikey.Verifier
	Job         uuid.UUID                                         // that it has made, or made before with the same key; zero: none yet
	// Leave ends the share of the process that the request takes; nil: it takes none.
	Leave func()
}

// EndShare ends the share of the process that the request takes, because from now on it only
// waits, or takes another.
func (c *Call) EndShare() {
	if c.Leave != nil {
		c.Leave()
		c.Leave = nil
	}
}

// WhilePresent returns a context that ends with ctx, when the client closes its connection, and
// when its key is revoked (stream.ErrRevoked). It is for requests that only wait, and whose connection nobody reads
// meanwhile. Call leave when the wait is over.
func (c *Call) WhilePresent(ctx context.Context) (present context.Context, leave func()) {
	present, end := context.WithCancelCause(ctx)
	cancel, unwatch := func() { end(nil) }, func() {}
	if c.KeyPrefix != "" && c.Watch != nil {
		unwatch = c.Watch(c.KeyPrefix, func() { end(stream.ErrRevoked) })
	}
	connection, ok := c.Connection.(*httpconn.Conn)
	if !ok {
		return present, func() { unwatch(); cancel() }
	}
	stop := connection.Watch(cancel)
	return present, func() { stop(); unwatch(); cancel() }
}

type callKey struct{}

// With returns a context with the call, for its handler.
func With(ctx context.Context, c *Call) context.Context { return context.WithValue(ctx, callKey{}, c) }

// Of returns the call that the guard let through. Without the guard it panics, and
// nothing is done.
func Of(ctx context.Context) *Call {
	return ctx.Value(callKey{}).(*Call) //nolint:forcetypeassert // mount puts the guard before every operation
}

// maxKey is the longest idempotency key, in characters.
const maxKey = 255

// IdempotencyKey returns the key of a request, bare or as a quoted structured-field string.
func IdempotencyKey(key string) (string, error) {
	if key == "" {
		return "", fault.New(fault.KeyMissing, "send an Idempotency-Key header, for example a fresh UUID, and the same one when you retry")
	}
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : n-1])
	}
	if len(key) < 1 || len(key) > maxKey || strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		return "", fault.New(fault.KeyInvalid, "an Idempotency-Key has 1 to %d printable ASCII characters", maxKey)
	}
	return key, nil
}

// Fingerprint is a hash of a request: operation, target and canonical body. Two
// requests with the same key must have the same. How a client writes its path or
// its JSON does not matter.
func Fingerprint(operation string, target []string, canonical []byte) [sha256.Size]byte {
	var text []byte
	for _, part := range append([]string{operation, string(canonical)}, target...) {
		text = strconv.AppendInt(text, int64(len(part)), 10)
		text = append(append(text, ':'), part...)
	}
	return sha256.Sum256(text)
}
