package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a private server with an append-only file, or a Sentinel.
type Redis struct {
	daemon
	home string
	args func() []string // of the next start, beside the file of its settings; nil: none
	bus  int             // its second port in a Cluster

	group *group
}

// StartRedis starts a Redis in dir.
func StartRedis(ctx context.Context, dir string, opts Options, logger *slog.Logger) (*Redis, error) {
	opts.Logger = logger
	r, err := newRedis(dir, "redis", opts, durable)
	if err != nil {
		return nil, err
	}
	if err := stopLeftover(filepath.Join(r.home, "redis.pid"), r.home, syscall.SIGTERM); err != nil {
		return nil, err
	}
	return r, r.begin(ctx)
}

// durable are the settings of a server that is no Sentinel.
const durable = "appendonly yes\nappendfsync everysec\nsave \"\"\nmaxmemory-policy noeviction\n"

// newRedis prepares the server whose data is in a folder of dir, with further settings.
func newRedis(dir, name string, opts Options, more string) (*Redis, error) {
	bin, err := redisServer()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	r := &Redis{daemon: daemon{log: "in " + home, shutdown: syscall.SIGTERM, crash: syscall.SIGKILL, grace: stopTimeout}, home: home}
	r.try = func(ctx context.Context) error { return r.ask(ctx, "PING").Err() }
	if r.pw, err = password(filepath.Join(dir, "redis.password")); err != nil {
		return nil, err
	}
	if r.port, err = freePort(); err != nil {
		return nil, err
	}
	config := filepath.Join(home, "redis.conf") // not the command line, where every user could read the password
	settings := fmt.Sprintf("bind 127.0.0.1\nport %d\nrequirepass %s\ndir %s\npidfile %s\nlogfile %s\ndaemonize no\n"+
		"proc-title-template \"{title} {config-file}\"\n", // so that stopLeftover recognises it
		r.port, r.pw, redisText(home), redisText(filepath.Join(home, "redis.pid")), redisText(filepath.Join(home, "redis.log")))
	if err := os.WriteFile(config, []byte(settings+strings.ReplaceAll(more, "PASSWORD", r.pw)), 0o600); err != nil {
		return nil, err
	}
	r.Child = &Child{Name: name, Insist: true, Restart: opts.Restart, Changed: opts.Changed, Logger: opts.Logger, Command: func() *exec.Cmd {
		cmd := exec.Command(bin, config)
		if r.args != nil {
			cmd.Args = append(cmd.Args, r.args()...)
		}
		cmd.Dir, cmd.SysProcAttr = home, attributes(nil)
		return cmd
	}}
	return r, nil
}

// redisText quotes a text for redis.conf: an unquoted one would end at a blank.
func redisText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + `"`
}

// URL returns the URL of the server, with a user: redis-cli 7 refuses a password alone.
func (r *Redis) URL() string { return "redis://default:" + r.pw + "@" + r.address() + "/0" }

// ask connects and runs a command.
func (r *Redis) ask(ctx context.Context, command ...any) *redis.Cmd {
	client := redis.NewClient(&redis.Options{Addr: r.address(), Username: "default", Password: r.pw, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	return client.Do(ctx, command...)
}

// role returns master or slave; empty: the server does not answer.
func (r *Redis) role(ctx context.Context) (role string, current bool) {
	ctx, done := context.WithTimeout(ctx, time.Second)
	defer done()
	answer, _ := r.ask(ctx, "ROLE").Slice()
	if len(answer) == 0 {
		return "", false
	}
	return fmt.Sprint(answer[0]), len(answer) > 3 && answer[3] == "connected"
}

// shape is how many primaries there are, and replicas of each.
type shape struct{ primaries, replicas int }

var shapes = map[string]shape{RedisSingle: {1, 0}, RedisThree: {3, 0}, RedisSentinel: {1, 2}, RedisCluster: {3, 1}}

// group is a primary and its replicas. Which of them is the primary is in a file, for the next start.
type group struct {
	servers []*Redis
	primary atomic.Pointer[Redis]
}

func (g *group) file() string { return filepath.Join(g.servers[0].home, "primary") }

// startRedis starts the servers, and waits until each can replace another.
func (s *Stack) startRedis(ctx context.Context, opts Options) error {
	shape := shapes[s.kind]
	for range shape.primaries {
		s.groups = append(s.groups, new(group))
	}
	for i := range shape.primaries * (1 + shape.replicas) {
		if err := s.prepare(i, s.groups[i%shape.primaries], opts); err != nil {
			return err
		}
	}
	s.Redis = s.stores[0]
	if err := s.writeNodes(); err != nil {
		return err
	}
	for _, r := range s.stores {
		if err := r.begin(ctx); err != nil {
			return err
		}
	}
	for _, r := range s.stores {
		if err := awaitReady(ctx, r.Name, r.Exited(), func(ctx context.Context) error { return s.inPlace(ctx, r) }); err != nil {
			return err
		}
	}
	return s.startSentinels(ctx, opts)
}

// prepare prepares the ith server. Each kind has folders of its own: a kind does not read the keys of another.
func (s *Stack) prepare(i int, g *group, opts Options) (err error) {
	name, more, bus := "redis", durable, 0
	if s.kind != RedisSingle {
		name = fmt.Sprintf("redis-%s-%d", s.kind, i+1)
	}
	if s.kind == RedisCluster {
		if bus, err = freePort(); err != nil {
			return err
		}
		more += fmt.Sprintf("cluster-enabled yes\ncluster-port %d\ncluster-node-timeout 2000\ncluster-allow-replica-migration no\n", bus)
	}
	r, err := newRedis(s.Dir, name, opts, more+"masterauth PASSWORD\nrepl-diskless-sync-delay 0\n")
	if err != nil {
		return err
	}
	r.bus, r.group = bus, g
	s.stores, g.servers = append(s.stores, r), append(g.servers, r)
	if last, _ := os.ReadFile(g.file()); len(g.servers) == 1 || string(last) == name {
		g.primary.Store(r)
	}
	if shapes[s.kind].replicas > 0 { // a primary that ended is not started again before another has replaced it
		r.Hold = func(down time.Duration) bool { return g.primary.Load() == r && down < failoverPatience }
	}
	if s.kind == RedisSentinel {
		r.args = func() []string {
			if primary := g.primary.Load(); primary != r {
				return []string{"--replicaof", "127.0.0.1", strconv.Itoa(primary.port)}
			}
			return []string{"--replicaof", "no", "one"} // a Sentinel may have written another to its settings
		}
	}
	return nil
}

// failoverPatience is longer than Sentinels and Clusters take. Then there is nobody to replace the primary.
const failoverPatience = time.Minute

// slots is the number of a Cluster's slots.
const slots = 16384

// writeNodes writes what each node of the Cluster knows of all: the ports are new at each start.
func (s *Stack) writeNodes() (err error) {
	if s.kind != RedisCluster {
		return nil
	}
	for _, self := range s.stores {
		var text strings.Builder
		for i, r := range s.stores {
			n, primary := i%len(s.groups), r.group.primary.Load()
			flags, of, owns := "slave", fmt.Sprintf("%040d", primary.port), ""
			if r == primary {
				flags, of, owns = "master", "-", fmt.Sprintf(" %d-%d", firstSlot(n, len(s.groups)), firstSlot(n+1, len(s.groups))-1)
			}
			if r == self {
				flags = "myself," + flags
			}
			fmt.Fprintf(&text, "%040d %s@%d %s %s 0 0 %d connected%s\n", r.port, r.address(), r.bus, flags, of, n+1, owns)
		}
		fmt.Fprintf(&text, "vars currentEpoch %d lastVoteEpoch 0\n", len(s.groups))
		err = errors.Join(err, os.WriteFile(filepath.Join(self.home, "nodes.conf"), []byte(text.String()), 0o600))
	}
	return err
}

// firstSlot returns the first of the slots of the nth group: each has as many.
func firstSlot(n, groups int) int { return (n*slots + groups - 1) / groups }

// groupOf returns the servers that have the keys with a hash tag.
func (s *Stack) groupOf(tag string) *group {
	if s.kind != RedisCluster {
		return s.groups[0]
	}
	crc := uint16(0) // CRC-16/XMODEM, as Redis has it
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			crc = crc<<1 ^ crc>>15*0x1021
		}
	}
	return s.groups[int(crc)%slots*len(s.groups)/slots]
}

// inPlace fails until a server has the role that it should have after the start.
func (s *Stack) inPlace(ctx context.Context, r *Redis) error {
	role, current := r.role(ctx)
	if primary := r == r.group.primary.Load(); primary != (role == "master") || !primary && !current {
		return fmt.Errorf("its role is %q; it replicates: %t", role, current)
	}
	if s.kind == RedisCluster {
		if state, err := r.ask(ctx, "CLUSTER", "INFO").Text(); err != nil || !strings.Contains(state, "cluster_state:ok") {
			return fmt.Errorf("the cluster is not ready: %s, %w", state, err)
		}
	}
	return nil
}

const sentinelMaster = "triprize"

// startSentinels starts three, of which two decide.
func (s *Stack) startSentinels(ctx context.Context, opts Options) error {
	if s.kind != RedisSentinel {
		return nil
	}
	for n := range 3 {
		r, err := newRedis(s.Dir, fmt.Sprintf("sentinel-%d", n+1), opts, fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\n"+
			"sentinel auth-pass %[1]s PASSWORD\nsentinel sentinel-pass PASSWORD\n"+
			"sentinel down-after-milliseconds %[1]s 2000\nsentinel failover-timeout %[1]s 5000\nsentinel parallel-syncs %[1]s 2\n",
			sentinelMaster, s.groups[0].primary.Load().port))
		if err != nil {
			return err
		}
		r.args = func() []string { return []string{"--sentinel"} }
		s.sentinels = append(s.sentinels, r)
		if err := r.begin(ctx); err != nil {
			return err
		}
	}
	for _, r := range s.sentinels {
		if err := awaitReady(ctx, r.Name, r.Exited(), func(ctx context.Context) error {
			info, err := r.ask(ctx, "INFO", "sentinel").Text()
			if err == nil && !(strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=2,sentinels=3")) {
				err = fmt.Errorf("it does not know all: %s", info)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// watchRedis finds replicas that have become primaries: the primary does not answer, or is a replica.
func (s *Stack) watchRedis(ctx context.Context, opts Options) {
	for _, g := range s.groups {
		if role, _ := g.primary.Load().role(ctx); role == "master" {
			continue
		}
		for _, r := range g.servers {
			if role, _ := r.role(ctx); role == "master" && r != g.primary.Load() {
				opts.Logger.Warn("another Redis is the primary", "was", g.primary.Load().Name, "is", r.Name)
				g.primary.Store(r)
				_ = os.WriteFile(g.file(), []byte(r.Name), 0o600) // without it the next start has another primary, and older data
				r.changed()
				break
			}
		}
	}
}

// RedisURL returns the URL for the settings.
func (s *Stack) RedisURL() string {
	var servers []*Redis
	path, query := "", url.Values{}
	switch s.kind {
	case RedisSentinel:
		servers, path, query = s.sentinels, "/0", url.Values{"master_name": {sentinelMaster}, "username": {"default"}, "password": {s.Redis.pw}}
	case RedisCluster:
		servers = s.stores
	default:
		return s.Redis.URL()
	}
	for _, r := range servers[1:] {
		query.Add("addr", r.address())
	}
	u := url.URL{Scheme: "redis+" + s.kind, User: url.UserPassword("default", s.Redis.pw), Host: servers[0].address(), Path: path, RawQuery: query.Encode()}
	return u.String()
}

// LockURLs returns the URLs of the servers for locks by majority, separated by commas; empty: RedisURL is for them.
func (s *Stack) LockURLs() string {
	if s.kind != RedisThree {
		return ""
	}
	var urls []string
	for _, r := range s.stores {
		urls = append(urls, r.URL())
	}
	return strings.Join(urls, ",")
}
