// Package redisx opens the Redis client. It owns no keys; each package that uses Redis documents its own.
//
// The client speaks to one server, to the primary that Sentinel names, or to a Cluster. There, all keys of a
// command or script must have the same hash tag, as in asynq:{queue}:pending.
package redisx

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"triprize/internal/platform/config"
	"triprize/internal/platform/tracing"
)

const (
	// timeout bounds one connect, write or read.
	timeout = 2 * time.Second
	// poolSize bounds the connections, in a Cluster those to each node.
	poolSize = 32
	// reloadEvery is how often the client of a Cluster in use asks who has which slots. Only that tells it of a new
	// primary while the old one does not answer; go-redis would ask once a minute.
	reloadEvery = 2 * time.Second
)

// Open returns a client that connects with its first command: Redis may be down at any time. Commands respect the
// deadline of their context. changes are for a single server.
func Open(settings config.Redis, name string, changes ...func(*redis.Options)) (redis.UniversalClient, error) {
	servers, err := settings.Servers()
	if err != nil {
		return nil, err
	}
	roots, err := readCA(settings.CAFile)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(settings.Timeout, timeout)
	unsupported := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // only hosted services support them
	var client redis.UniversalClient
	switch {
	case servers.Cluster != nil:
		o := servers.Cluster
		o.ClientName, o.PoolSize, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = name, poolSize, true, unsupported
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.DialerRetries = limit, limit, limit, 1 // commands are retried
		o.ClusterStateReloadInterval, o.DisableRoutingPolicies = reloadEvery, true             // all keys of our commands are in one slot
		trust(o.TLSConfig, roots, true)
		client = redis.NewClusterClient(o)
	case servers.Sentinel != nil:
		o, retries := servers.Sentinel, servers.Sentinel.MaxRetries
		o.ClientName, o.PoolSize, o.ContextTimeoutEnabled = name, poolSize, true
		trust(o.TLSConfig, roots, true)
		// To dial, go-redis asks the Sentinel that answered last, twice, and then all. It forgets one that is away only if
		// there is time left for the dial: each connect, and each question without retries, has a quarter of it.
		o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: limit / 4, TLSConfig: o.TLSConfig})
		o.DialTimeout, o.DialerRetries, o.PoolTimeout = limit, 1, limit+time.Second
		o.ReadTimeout, o.WriteTimeout, o.MaxRetries = limit/4, limit/4, -1
		failover := redis.NewFailoverClient(o)
		own := failover.Options() // not of Sentinels; read with each command
		own.ReadTimeout, own.WriteTimeout, own.MaxRetries = limit, limit, max(cmp.Or(retries, 3), 0)
		client = failover
	default:
		o := servers.Single
		o.ClientName, o.PoolSize, o.ContextTimeoutEnabled, o.MaintNotificationsConfig = name, poolSize, true, unsupported
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = limit, limit, limit
		trust(o.TLSConfig, roots, false)
		for _, change := range changes {
			change(o)
		}
		client = redis.NewClient(o)
	}
	if tracing.On() {
		client.AddHook(tracing.Commands{})
	}
	return client, nil
}

// Once disables retries of commands and connections, for callers that use a quorum of servers.
func Once(opts *redis.Options) { opts.MaxRetries, opts.DialerRetries = -1, 1 }

// readCA returns the certificates of redis.ca_file, or nil for those of the system.
func readCA(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file) //nolint:gosec // of the operator
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(pem) {
		err = errors.New("has no certificate in PEM")
	}
	if err != nil {
		return nil, fmt.Errorf("setting redis.ca_file (TRIPRIZE_REDIS_CA_FILE): %w", err)
	}
	return roots, nil
}

// trust sets who may sign the certificates of servers. Each of several servers has its own name; go-redis would expect
// that of the first.
func trust(settings *tls.Config, roots *x509.CertPool, several bool) {
	if settings == nil {
		return
	}
	settings.RootCAs = roots
	if several {
		settings.ServerName = ""
	}
}

// ErrKind begins the error of a redis.url that names servers of another kind than there are.
var ErrKind = errors.New("names")

// ErrReplica is the ErrKind that a failover behind an address that stays may end.
var ErrReplica = fmt.Errorf("%w a replica; use its primary, or redis+sentinel://", ErrKind)

// CheckKind returns an ErrKind that says what to change, or the error of a server that does not answer.
func CheckKind(ctx context.Context, rdb redis.UniversalClient) error {
	info, err := rdb.Info(ctx, "cluster", "replication").Result()
	client, single := rdb.(*redis.Client)
	sentinel := single && client.Options().Addr == "FailoverClient" // as go-redis has it
	kind := func(what string) error { return fmt.Errorf("%w %s", ErrKind, what) }
	switch {
	case redis.HasErrorPrefix(err, "This instance has cluster support disabled"):
		return kind("no node of a Redis Cluster; use redis://")
	case sentinel && redis.HasErrorPrefix(err, "unknown command"):
		return kind("no Sentinel; use the address and port of one, or redis://")
	case sentinel && errors.Is(err, redis.Nil):
		return kind("no primary that Sentinel knows; correct master_name")
	case redis.IsPermissionError(err): // nobody can tell
		return nil
	case err != nil:
		return err
	case single && strings.Contains(info, "cluster_enabled:1"):
		return kind("a node of a Redis Cluster; use redis+cluster://")
	case single && !sentinel && strings.Contains(info, "role:slave"):
		return ErrReplica
	}
	return nil
}

// AllowChannels says what a user of Redis 7 needs that may not publish: by default it may use no channel.
const AllowChannels = "ACL SETUSER … &*: without channels, clients and workers wait for a poll in place of a message"

// IsDenied reports whether a server lets this user not look, as hosted ones do.
func IsDenied(err error) bool {
	return redis.IsPermissionError(err) || redis.HasErrorPrefix(err, "unknown command")
}

// CheckChannels publishes a message that nobody reads.
func CheckChannels(ctx context.Context, rdb redis.UniversalClient, namespace string) error {
	return rdb.Publish(ctx, namespace+":check", "").Err()
}

// EachPrimary calls do with a client of each server that takes writes, concurrently in a Cluster. It returns the first error.
func EachPrimary(ctx context.Context, rdb redis.UniversalClient, do func(ctx context.Context, one redis.UniversalClient) error) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error { return do(ctx, one) })
	}
	return do(ctx, rdb)
}

// LogTo logs the client library's own messages at debug level: callers get the errors anyway.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

type clientLog struct{ logger *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.logger.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
