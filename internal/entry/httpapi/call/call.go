// Package call identifies the sender of a request to its handler, and holds what the guard has read.
package call

import (
	"context"
	"crypto/sha256"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/stream"
	"triprize/internal/platform/tracing"
)

// Call is what is known of a request, as it becomes known: for its handler, and for the log.
type Call struct {
	Caller                        // its role is empty while the sender is not known
	Operation   string            // its id in the contract; empty: the request is none of these
	Key         string            // the idempotency key, without quotes, in the caller's KeyScope
	Fingerprint [sha256.Size]byte // distinguishes different requests with the same key
	Prefer      string            // the Prefer header
	IsRead      bool              // it is a GET
	WantsLines  bool              // it accepts JSON lines rather than CSV
	RequestID   string            // its X-Request-ID
	Span        tracing.Span      // zero: none
	Traceparent string            // the trace that the request is in (W3C Trace Context); empty: none
	Connection  net.Conn
	Watch       func(prefix string, revoked func()) (stop func()) // of keys, see key.Verifier
	Job         uuid.UUID                                         // that it has made, or made before with the same key; zero: none yet
	Code        fault.Code                                        // of the problem that it got; empty: none
	Err         error                                             // why it was not served, beside the code
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
	cancel, unwatch := func() { end(nil) }, c.UntilRevoked(func() { end(stream.ErrRevoked) })
	connection, ok := c.Connection.(*httpconn.Conn)
	if !ok {
		return present, func() { unwatch(); cancel() }
	}
	stop := connection.Watch(cancel)
	return present, func() { stop(); unwatch(); cancel() }
}

// UntilRevoked calls end when the key of the request is revoked, until stop is called.
func (c *Call) UntilRevoked(end func()) (stop func()) {
	if c.KeyPrefix == "" || c.Watch == nil {
		return func() {}
	}
	return c.Watch(c.KeyPrefix, end)
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
		return "", fault.New(fault.KeyInvalid, "an Idempotency-Key must have 1 to %d printable ASCII characters", maxKey)
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

// Caller is the sender of a request.
type Caller struct {
	Role   resource.Role
	Client string // who it is to limits and turns: a user with a token is a client of its own
	User   string // the one user it may act for; empty: any
	App    string // the client whose its jobs, holds and purchases are: Client, or that of the issuer of its token

	KeyPrefix string // of its API key; empty: it has a token, or is anonymous
	Console   bool   // it is a session at the console, whose pages poll
	Approves  bool   // it has the role approver, too
}

// MayActFor reports whether the caller may name a user: to act for it, or to list what it has.
func (who Caller) MayActFor(userID string) bool {
	switch who.Role {
	case resource.Operator, resource.Viewer, resource.App:
		return true
	case resource.User:
		return who.User == userID
	default:
		return false
	}
}

// Grant is whose resources the caller sees and changes; every query of a topic takes it: an operator's are all, an
// app's those of its client, a user's its own at the client of its issuer. Others do not exist.
func (who Caller) Grant() access.Grant {
	switch who.Role {
	case resource.Operator, resource.Viewer: // whose operations only read
		return access.Everything()
	case resource.App:
		return access.OfClient(who.App)
	case resource.User:
		return access.OfUser(who.App, who.User)
	default:
		return access.Grant{}
	}
}

// KeyScope begins the stored idempotency keys of the caller: those of users who share an App are
// apart. An app's own have none, and no key that is sent contains a line feed.
func (who Caller) KeyScope() string {
	if who.App == who.Client {
		return ""
	}
	return who.Client + "\n"
}

// MaySeeJob reports whether the caller may see a job: an app also sees those of its users.
func (who Caller) MaySeeJob(j job.Job) bool {
	return who.Role.SeesAll() || j.Client == who.App && strings.HasPrefix(j.Key, who.KeyScope())
}

// May returns a forbidden Error unless the caller has one of the roles.
func (who Caller) May(roles []string) error {
	if slices.Contains(roles, string(who.Role)) || who.Approves && slices.Contains(roles, string(key.Approver)) {
		return nil
	}
	return fault.New(fault.Forbidden, "the role %s may not do this", who.Role)
}

// Signature names the caller in the records of its actions: role:client, and /user
// when a user is signed in. It has at most 181 characters.
func (who Caller) Signature() string {
	signature := string(who.Role) + ":" + who.App
	if who.User != "" {
		signature += "/" + who.User
	}
	return signature
}

// CheckMetadata returns an invalid-request Error that names each pair at fault. The contract
// has checked what it can say.
func CheckMetadata(given contract.Metadata) error {
	var faults []fault.Field
	for _, flaw := range metadata.Map(given).Check() {
		pointer := "/metadata"
		if !flaw.Whole {
			pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(flaw.Key)
		}
		faults = append(faults, fault.Field{Pointer: pointer, Detail: flaw.Detail})
	}
	if len(faults) > 0 {
		return fault.Invalid(faults...)
	}
	return nil
}

// MayAskFor returns a forbidden Error when the caller may not ask for something for a user, or give
// metadata with it: an app reads in them what it has written itself, and not what a buyer has.
func (who Caller) MayAskFor(userID string, given contract.Metadata) error {
	switch {
	case !who.MayActFor(userID):
		return fault.New(fault.Forbidden, "user_id must be the sub of your token")
	case len(given) > 0 && !who.Role.SeesMetadata():
		return fault.New(fault.Forbidden, "only apps and operators may set metadata")
	}
	return CheckMetadata(given)
}
