package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

// Tests of how locks behave in time run on simulated servers and on the clock of package synctest. No time passes
// there but what a test or the lock waits for, so each result is the same on every machine.

func TestMain(m *testing.M) {
	redisx.LogTo(slog.New(slog.DiscardHandler)) // of servers that are away there is much to say
	servers.Main(m)
}

// once is for tests in which it is to be seen whether a lock is taken.
func once(s *config.Locks) { s.Tries = 1 }

// The settings of locks on simulated servers.
const (
	ttl      = 3 * time.Second
	timeout  = time.Second
	patience = timeout / 5 // how long one server may take for an answer
)

// simulated is a Redis in memory that knows the commands of locks.
type simulated struct {
	mu      sync.Mutex
	values  map[string]simulatedValue
	sent    []simulatedCommand
	away    bool              // every command fails
	hangs   bool              // every command waits until its context ends
	forgets bool              // every command is done, and answered with an error
	before  func(kind string) // called before a command is answered; not set while one is
}

type simulatedValue struct {
	text    string
	expires time.Time
}

type simulatedCommand struct {
	kind string // take, extend, release
	key  string
	at   time.Time
}

func (*simulated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*simulated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook answers each command itself; none goes over a network.
func (s *simulated) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		kind, key := "take", args[1].(string) // SET key value PX|EX n NX
		if cmd.Name() == "evalsha" {          // digest 1 key value [ms]
			kind, key = map[int]string{5: "release", 6: "extend"}[len(args)], args[3].(string)
		}
		var away, hangs bool
		s.set(func(s *simulated) {
			s.sent, away, hangs = append(s.sent, simulatedCommand{kind, key, time.Now()}), s.away, s.hangs
		})
		if s.before != nil {
			s.before(kind)
		}
		if hangs {
			<-ctx.Done()
		}
		err := ctx.Err()
		if away {
			err = errors.New("the server is away")
		}
		if err == nil {
			s.set(func(s *simulated) {
				if s.answer(cmd, kind, key); s.forgets {
					err = errors.New("the connection broke")
				}
			})
		}
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// answer does what a command asks for.
func (s *simulated) answer(cmd redis.Cmder, kind, key string) {
	args, value := cmd.Args(), s.values[key]
	there := time.Now().Before(value.expires)
	if kind == "take" {
		unit := time.Millisecond
		if strings.EqualFold(args[3].(string), "ex") {
			unit = time.Second
		}
		if !there {
			s.values[key] = simulatedValue{args[2].(string), time.Now().Add(time.Duration(args[4].(int64)) * unit)}
		}
		cmd.(*redis.BoolCmd).SetVal(!there)
		return
	}
	answer := int64(0)
	switch mine := there && value.text == args[4].(string); {
	case mine && kind == "extend":
		s.values[key], answer = simulatedValue{value.text, time.Now().Add(time.Duration(args[5].(int)) * time.Millisecond)}, 1
	case mine:
		delete(s.values, key)
		answer = 1
	case !there && kind == "release":
		answer = -1
	}
	cmd.(*redis.Cmd).SetVal(answer)
}

func (s *simulated) set(change func(*simulated)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// holder returns what holds a lock on the server, or nothing.
func (s *simulated) holder(name string) (text string) {
	s.set(func(s *simulated) {
		if value := s.values["ns:lock:"+name]; time.Now().Before(value.expires) {
			text = value.text
		}
	})
	return text
}

// put gives a lock on the server to a holder for an hour; "": to nobody.
func (s *simulated) put(name, holder string) {
	s.set(func(s *simulated) {
		if s.values["ns:lock:"+name] = (simulatedValue{holder, time.Now().Add(time.Hour)}); holder == "" {
			delete(s.values, "ns:lock:"+name)
		}
	})
}

// commands returns the commands of a kind that were sent to the server.
func (s *simulated) commands(kind string) (sent []simulatedCommand) {
	s.set(func(s *simulated) {
		sent = slices.DeleteFunc(slices.Clone(s.sent), func(c simulatedCommand) bool { return c.kind != kind })
	})
	return sent
}

func (s *simulated) count(kind string) int { return len(s.commands(kind)) }

// cluster is some simulated servers and the lockers of two processes on them.
type cluster struct {
	t             *testing.T
	servers       []*simulated
	log           bytes.Buffer // of both lockers, at debug
	registry      *prometheus.Registry
	locker, other *lock.Locker
}

// simulate runs a test on some simulated servers and the simulated clock. It fails when a goroutine is left over at
// the end.
func simulate(t *testing.T, n int, test func(t *testing.T, c *cluster), changes ...func(*config.Locks)) {
	t.Helper()
	settings := servers.Defaults(t)
	settings.Locks.TTL, settings.Locks.Timeout = ttl, timeout
	settings.Redis.URL, settings.Redis.Timeout = "redis://127.0.0.1:1/0", time.Hour // nothing goes there, and only contexts end commands
	for _, change := range changes {
		change(&settings.Locks)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, registry: prometheus.NewRegistry()}
		logger := slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for range n {
			c.servers = append(c.servers, &simulated{values: make(map[string]simulatedValue)})
		}
		process := func(registry *prometheus.Registry) *lock.Locker {
			var clients []redis.UniversalClient
			for _, server := range c.servers {
				client, err := redisx.Open(settings.Redis, "triprize-test", redisx.Once)
				servers.NoError(t, err)
				t.Cleanup(func() { _ = client.Close() })
				client.AddHook(server)
				clients = append(clients, client)
			}
			return lock.New(clients, "ns", settings.Locks, logger, registry)
		}
		c.locker, c.other = process(c.registry), process(prometheus.NewRegistry())
		test(t, c)
	})
}

// acquire takes locks that must be free.
func acquire(t *testing.T, l *lock.Locker, names ...string) (release func()) {
	t.Helper()
	release, err := l.Acquire(t.Context(), names...)
	servers.NoError(t, err)
	return release
}

// measured returns the value of a counter, or how often a histogram was observed, by its label.
func (c *cluster) measured(name, label string) int {
	c.t.Helper()
	return int(servers.Counted(c.t, c.registry, "triprize_lock_"+name, label))
}
