package lock

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// breakerOpen is how long a server that does not answer gets no requests for new locks.
const breakerOpen = time.Second

// server is one of the servers, as redsync sees it. redsync waits for the answer
// of each of them: without the breaker, one that hangs would delay every lock.
type server struct {
	pool     redsyncredis.Pool
	breaker  *gobreaker.CircuitBreaker[bool]
	whenOpen time.Duration // timeout of an Eval while the breaker is open
}

func newServer(client redis.UniversalClient, timeout time.Duration) *server {
	return &server{
		pool:     goredis.NewPool(client),
		whenOpen: timeout / 10,
		breaker: gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{
			Name:        "locks",
			Timeout:     breakerOpen, // after it one lock tries again
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
			IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) }, // a caller who left says nothing about the server
		}),
	}
}

// Get returns what redsync calls a connection: commands under one context.
func (s *server) Get(ctx context.Context) (redsyncredis.Conn, error) {
	commands, err := s.pool.Get(ctx)
	return &conn{Conn: commands, server: s, ctx: ctx}, err
}

// conn is what redsync sends commands with. It takes a lock with SetNX, and
// extends and deletes it with Eval.
type conn struct {
	redsyncredis.Conn
	server *server
	ctx    context.Context // of one command; redsync passes it to Get
}

// SetNX fails at once while the breaker is open: that is one vote less.
func (c *conn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	return c.server.breaker.Execute(func() (bool, error) { return c.Conn.SetNX(name, value, expiry) })
}

// Eval is always tried, because the server may still have the lock; but for
// a short time while the breaker is open.
func (c *conn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	if c.server.breaker.State() != gobreaker.StateOpen {
		return c.Conn.Eval(script, keysAndArgs...)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.whenOpen)
	defer cancel()
	commands, err := c.server.pool.Get(ctx)
	if err != nil {
		return nil, err
	}
	return commands.Eval(script, keysAndArgs...)
}

// votes counts the servers that did not say yes.
type votes struct {
	no     int // the lock has another holder there, or none
	silent int // no answer, or an error
}

// countVotes counts the votes in an error of redsync: an ErrTaken when a majority
// said no, otherwise a tree of one error for each server that did not say yes.
func countVotes(err error) (v votes) {
	switch err := err.(type) { //nolint:errorlint // it counts each error of the tree; errors.As would find the first
	case *redsync.ErrTaken:
		v.no = len(err.Nodes)
	case *redsync.ErrNodeTaken:
		v.no = 1
	case *redsync.RedisError:
		v.silent = 1
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			w := countVotes(one)
			v.no += w.no
			v.silent += w.silent
		}
	}
	return v
}

// taken tells, for a failed attempt to take a lock, whether another holder has it:
// a majority answered, and at least one server said no. Without a majority the
// holder is unknown; and when all answers were yes, they came too late.
func (v votes) taken(servers, quorum int) bool { return v.no > 0 && servers-v.silent >= quorum }

// gone tells, for a failed attempt to extend a lock, whether no majority can have
// it any more, even if all silent servers agreed.
func (v votes) gone(servers, quorum int) bool { return servers-v.no < quorum }
