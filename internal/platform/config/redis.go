package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis carries tasks, caches, locks and rate limits.
type Redis struct {
	URL       string        `mapstructure:"url"`
	CAFile    string        `mapstructure:"ca_file"`
	Namespace string        `mapstructure:"namespace"     validate:"required,max=64,printascii,excludesall={} "`
	Timeout   time.Duration `mapstructure:"-"`
}

// Check requires a URL. Processes call it; commands without Redis do not.
func (r Redis) Check() error {
	if r.URL == "" {
		return fault("redis.url", "is required")
	}
	return nil
}

// FailsOver reports whether Sentinel or a Cluster replaces a lost primary.
func (r Redis) FailsOver() bool {
	scheme, _, _ := strings.Cut(r.URL, ":")
	return strings.Contains(scheme, "+")
}

// RedisServers is what redis.url names. One of its fields is set.
type RedisServers struct {
	Single   *redis.Options
	Sentinel *redis.FailoverOptions // finds the primary
	Cluster  *redis.ClusterOptions
}

// Servers parses the URL: the suffix of its scheme is the kind of servers, the rest is for go-redis.
func (r Redis) Servers() (s RedisServers, err error) {
	bad := func(reason string) (RedisServers, error) { return RedisServers{}, fault("redis.url", "%s", reason) }
	const form = "must be a URL, redis://host:6379/0, redis+sentinel://host:26379/0?master_name=NAME&addr=host2:26379 or redis+cluster://host:6379?addr=host2:6379 " +
		"(rediss for TLS), or unix:///path; with no options but those of go-redis; " + encoded
	u, err := url.Parse(r.URL)
	if err != nil || !unambiguous.MatchString(r.URL) {
		return bad(form) // err repeats the password, here and below
	}
	if strings.Contains(u.Host, ",") {
		return bad("must name one host; further ones follow as &addr=host:port, with redis+sentinel:// or redis+cluster://")
	}
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	switch u.Scheme = scheme; kind {
	case "":
		s.Single, err = redis.ParseURL(u.String())
	case "sentinel":
		if s.Sentinel, err = redis.ParseFailoverURL(u.String()); err != nil {
			break
		}
		if s.Sentinel.MasterName == "" || u.Port() == "" {
			return bad("must have the port of Sentinel and ?master_name=NAME after redis+sentinel://, with the name that Sentinel has for the primary")
		}
		if s.Sentinel.ReplicaOnly || s.Sentinel.RouteByLatency || s.Sentinel.RouteRandomly {
			return bad("must not read from replicas: remove replica_only, route_by_latency and route_randomly")
		}
	case "cluster":
		if s.Cluster, err = redis.ParseClusterURL(u.String()); err != nil {
			break
		}
		if strings.Trim(u.Path, "/0") != "" {
			return bad("must not name a database after redis+cluster://: a Cluster has only 0")
		}
		if s.Cluster.ReadOnly || s.Cluster.RouteByLatency || s.Cluster.RouteRandomly {
			return bad("must not read from replicas: remove read_only, route_by_latency and route_randomly")
		}
	default:
		return bad(form)
	}
	if err != nil {
		return bad(form)
	}
	return s, nil
}

// checkRedis accepts no URL: commands without Redis need none.
func checkRedis(r Redis) error {
	if r.URL == "" {
		return nil
	}
	_, err := r.Servers()
	return err
}
