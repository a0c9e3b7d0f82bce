package lock

import (
	"context"
	"errors"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// rest is how long a server that does not answer is not asked for new locks.
const rest = time.Second

// server is one of the servers, as redsync sees it. redsync waits for the answer
// of each of them: without the breaker one that hangs would use up everybody's patience.
type server struct {
	pool    redsyncredis.Pool
	breaker *gobreaker.CircuitBreaker[bool]
	brief   time.Duration // for what cannot be left out, while it rests
}

func newServer(client redis.UniversalClient, patience time.Duration) *server {
	return &server{
		pool:  goredis.NewPool(client),
		brief: patience / 10,
		breaker: gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{
			Name:        "locks",
			Timeout:     rest, // then one lock tries again
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
			IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) }, // a caller who left says nothing of the server
		}),
	}
}

// Get returns a connection, as redsync calls it: commands under one context.
func (s *server) Get(ctx context.Context) (redsyncredis.Conn, error) {
	commands, err := s.pool.Get(ctx)
	return &conn{Conn: commands, server: s, ctx: ctx}, err
}

// conn is what redsync sends commands with. It takes a lock with SetNX, and
// extends and deletes it with Eval.
type conn struct {
	redsyncredis.Conn
	server *server
	ctx    context.Context // of one command: redsync's way
}

// SetNX fails at once while the server rests: that is one vote less.
func (c *conn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	return c.server.breaker.Execute(func() (bool, error) { return c.Conn.SetNX(name, value, expiry) })
}

// Eval is tried always, as the lock may be there from before; but not for long
// while the server rests.
func (c *conn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	if c.server.breaker.State() != gobreaker.StateOpen {
		return c.Conn.Eval(script, keysAndArgs...)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.brief)
	defer cancel()
	briefly, err := c.server.pool.Get(ctx)
	if err != nil {
		return nil, err
	}
	return briefly.Eval(script, keysAndArgs...)
}
