// Package redisx opens the Redis client with the timeouts of the settings. It
// owns no keys; each package that uses Redis names its own under Namespace.
package redisx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"triprize/internal/platform/config"
)

// Open returns a client that connects lazily: Redis may be away at start and at
// any time after. A context's deadline holds for every command.
func Open(settings config.Redis, name string, changes ...func(*redis.Options)) (*redis.Client, error) {
	opts, err := redis.ParseURL(settings.URL)
	if err != nil {
		return nil, errors.New("redisx.Open: not the URL of a Redis") // err repeats the password
	}
	opts.ClientName = name
	opts.DialTimeout = settings.DialTimeout
	opts.ReadTimeout = settings.ReadTimeout
	opts.WriteTimeout = settings.WriteTimeout
	opts.PoolSize = settings.PoolSize
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // a hosted service's protocol
	for _, change := range changes {
		change(opts)
	}
	return redis.NewClient(opts), nil
}

// Once is for who asks several servers and can do without one: a command, and a
// connection, is not tried again.
func Once(opts *redis.Options) { opts.MaxRetries, opts.DialerRetries = -1, 1 }

// LogTo sends the client library's own messages to logger, as debug messages:
// every failed command is an error of its caller already.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

type clientLog struct{ logger *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.logger.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
