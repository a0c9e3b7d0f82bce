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

// countVotes counts the servers that did not accept: no has those where the lock has another holder or none, failed
// those that did not answer or returned an error. An error of redsync is an ErrTaken if a majority rejected, otherwise a
// tree with one error for each server that did not accept.
func countVotes(err error) (no, failed int) {
	switch err := err.(type) { //nolint:errorlint // counts each error of the tree; errors.As would find only the first
	case *redsync.ErrTaken:
		return len(err.Nodes), 0
	case *redsync.ErrNodeTaken:
		return 1, 0
	case *redsync.RedisError:
		return 0, 1
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			n, f := countVotes(one)
			no, failed = no+n, failed+f
		}
	}
	return no, failed
}
