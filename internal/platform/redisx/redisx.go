// Package redisx opens the Redis client. It owns no keys; each package that uses Redis documents its own.
package redisx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"triprize/internal/platform/config"
	"triprize/internal/platform/tracing"
)

// Open returns a client that connects with its first command: Redis may be down at any time. Commands respect the
// deadline of their context.
func Open(settings config.Redis, name string, changes ...func(*redis.Options)) (*redis.Client, error) {
	opts, err := redis.ParseURL(settings.URL)
	if err != nil {
		return nil, errors.New("redisx.Open: not the URL of a Redis") // err repeats the password
	}
	opts.ClientName = name
	opts.DialTimeout = cmp.Or(settings.Timeout, 2*time.Second) // for one connect, write or read
	opts.ReadTimeout, opts.WriteTimeout = opts.DialTimeout, opts.DialTimeout
	opts.PoolSize = 32
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // only hosted services support them
	for _, change := range changes {
		change(opts)
	}
	client := redis.NewClient(opts)
	if tracing.On() {
		client.AddHook(tracing.Commands{})
	}
	return client, nil
}

// Once disables retries of commands and connections, for callers that use a quorum of servers.
func Once(opts *redis.Options) { opts.MaxRetries, opts.DialerRetries = -1, 1 }

// LogTo logs the client library's own messages at debug level: callers get the errors anyway.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

type clientLog struct{ logger *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.logger.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
