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

// breakerOpen is how long a failing server gets no requests for new locks.
const breakerOpen = time.Second

// server is a redsync pool with a breaker. redsync waits for all servers, so a hanging one would delay every
// lock.
type server struct {
	pool        redsyncredis.Pool
	breaker     *gobreaker.CircuitBreaker[bool]
	openTimeout time.Duration // timeout of an Eval while the breaker is open
}

func newServer(client redis.UniversalClient, timeout time.Duration) *server {
	return &server{
		pool:        goredis.NewPool(client),
		openTimeout: timeout / 10,
		breaker: gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{
			Name:        "locks",
			Timeout:     breakerOpen, // then one lock probes
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
			IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) }, // a canceled call says nothing about the server
		}),
	}
}

// Get returns what redsync calls a connection: commands under one context.
func (s *server) Get(ctx context.Context) (redsyncredis.Conn, error) {
	commands, err := s.pool.Get(ctx)
	return &conn{Conn: commands, server: s, ctx: ctx}, err
}

// conn is a redsync connection. redsync takes a lock with SetNX, and extends and deletes it with Eval.
type conn struct {
	redsyncredis.Conn
	server *server
	ctx    context.Context // of one command, from Get
}

// SetNX fails at once while the breaker is open.
func (c *conn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	return c.server.breaker.Execute(func() (bool, error) { return c.Conn.SetNX(name, value, expiry) })
}

// Eval is always sent, because the server may still have the lock, with a shorter timeout while the breaker is
// open.
func (c *conn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	if c.server.breaker.State() != gobreaker.StateOpen {
		return c.Conn.Eval(script, keysAndArgs...)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.openTimeout)
	defer cancel()
	commands, err := c.server.pool.Get(ctx)
	if err != nil {
		return nil, err
	}
	return commands.Eval(script, keysAndArgs...)
}

// votes counts the servers that did not accept.
type votes struct {
	no     int // the lock has another holder there, or none
	failed int // no answer, or an error
}

// countVotes counts the votes in an error of redsync: an ErrTaken if a majority rejected, otherwise a tree with
// one error for each server that did not accept.
func countVotes(err error) (v votes) {
	switch err := err.(type) { //nolint:errorlint // counts each error of the tree; errors.As would find only the first
	case *redsync.ErrTaken:
		v.no = len(err.Nodes)
	case *redsync.ErrNodeTaken:
		v.no = 1
	case *redsync.RedisError:
		v.failed = 1
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			w := countVotes(one)
			v.no += w.no
			v.failed += w.failed
		}
	}
	return v
}

// isTaken reports, for a failed attempt to take a lock, whether another holder has it: a majority answered, and
// at least one server rejected. Without a majority the holder is unknown; if all accepted, they were too late.
func (v votes) isTaken(servers, quorum int) bool { return v.no > 0 && servers-v.failed >= quorum }

// isLost reports, for a failed attempt to extend a lock, whether no majority can have it, even if all failed
// servers accepted.
func (v votes) isLost(servers, quorum int) bool { return servers-v.no < quorum }
