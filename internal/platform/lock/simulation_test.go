package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Tests of how locks behave in time run on simulated servers and on the clock of
// package synctest. No time passes there but what a test or the lock waits for, so
// each result is the same on every machine.

func TestMain(m *testing.M) {
	redisx.LogTo(slog.New(slog.DiscardHandler)) // of servers that are away there is much to say
	servers.Main(m)
}

// long is the life of locks that must not run out in a test.
const long = time.Hour

// once is for tests in which it is to be seen whether a lock is taken.
func once(s *config.Locks) { s.Tries = 1 }

// The settings of locks on simulated servers.
const (
	ttl      = 3 * time.Second
	timeout  = time.Second
	patience = timeout / 4 // how long one server may take for an answer
)

var errAway = errors.New("the server is away")

// simulated is a Redis in memory that knows the commands of locks.
type simulated struct {
	mu     sync.Mutex
	values map[string]simulatedValue
	sent   []simulatedCommand
	away   bool                          // every command fails
	hangs  bool                          // every command waits until its context ends
	before func(kind, name string) error // called before a command of a lock is answered; an error is its answer
	after  func(kind, name string) error // the same, when it was carried out
}

type simulatedValue struct {
	text    string
	expires time.Time // zero: never
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
		err := s.answer(ctx, cmd)
		if s.after != nil && err == nil {
			kind, name := kindOf(cmd)
			err = s.after(kind, strings.TrimPrefix(name, "ns:lock:"))
		}
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

func (s *simulated) answer(ctx context.Context, cmd redis.Cmder) error {
	kind, name := kindOf(cmd)
	args := cmd.Args()
	s.mu.Lock()
	s.sent = append(s.sent, simulatedCommand{kind, name, time.Now()})
	away, hangs, before := s.away, s.hangs, s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(kind, strings.TrimPrefix(name, "ns:lock:")); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case away:
		return errAway
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case "take": // SET name value PX|EX n NX
		unit := time.Millisecond
		if strings.EqualFold(args[3].(string), "ex") {
			unit = time.Second
		}
		_, there := s.get(name)
		if !there {
			s.values[name] = simulatedValue{args[2].(string), time.Now().Add(time.Duration(args[4].(int64)) * unit)}
		}
		cmd.(*redis.BoolCmd).SetVal(!there)
	case "extend": // EVALSHA digest 1 name value ms
		value, there := s.get(name)
		mine := there && value.text == args[4].(string)
		if mine {
			s.values[name] = simulatedValue{value.text, time.Now().Add(time.Duration(args[5].(int)) * time.Millisecond)}
		}
		cmd.(*redis.Cmd).SetVal(map[bool]int64{true: 1, false: 0}[mine])
	case "release": // EVALSHA digest 1 name value
		value, there := s.get(name)
		answer := int64(-1)
		if there {
			answer = 0
			if value.text == args[4].(string) {
				delete(s.values, name)
				answer = 1
			}
		}
		cmd.(*redis.Cmd).SetVal(answer)
	default:
		return fmt.Errorf("the simulation does not know %v", args)
	}
	return nil
}

// kindOf returns what a command does, and the key of its lock.
func kindOf(cmd redis.Cmder) (kind, name string) {
	switch args := cmd.Args(); {
	case cmd.Name() == "set":
		return "take", args[1].(string)
	case cmd.Name() == "evalsha" && len(args) == 6:
		return "extend", args[3].(string)
	case cmd.Name() == "evalsha" && len(args) == 5:
		return "release", args[3].(string)
	}
	return cmd.Name(), ""
}

// get returns a value that has not run out.
func (s *simulated) get(name string) (simulatedValue, bool) {
	value, ok := s.values[name]
	return value, ok && (value.expires.IsZero() || time.Now().Before(value.expires))
}

// holder returns what holds a lock on the server, or nothing.
func (s *simulated) holder(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.get("ns:lock:" + name); ok {
		return value.text
	}
	return ""
}

// put gives a lock on the server to a holder for some time; 0: for ever.
func (s *simulated) put(name, holder string, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value := simulatedValue{text: holder}
	if lasts > 0 {
		value.expires = time.Now().Add(lasts)
	}
	s.values["ns:lock:"+name] = value
}

func (s *simulated) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, "ns:lock:"+name)
}

// commands returns the commands of a kind that were sent to the server.
func (s *simulated) commands(kind string) (sent []simulatedCommand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sent {
		if one.kind == kind {
			sent = append(sent, one)
		}
	}
	return sent
}

func (s *simulated) count(kind string) int { return len(s.commands(kind)) }

func (s *simulated) set(change func(*simulated)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// open returns a client as processes have it, but that its own timeouts end nothing:
// only the context of a command can.
func open(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	settings := servers.Defaults(t).Redis
	settings.URL, settings.Timeout = url, long
	client, err := redisx.Open(settings, "triprize-test", redisx.Once)
	servers.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// cluster is some simulated servers and a locker on them.
type cluster struct {
	t        *testing.T
	servers  []*simulated
	settings config.Locks
	log      bytes.Buffer
	logger   *slog.Logger         // of all lockers, at debug, to log
	registry *prometheus.Registry // of locker
	locker   *lock.Locker
}

// simulate runs a test on some simulated servers and the simulated clock. It fails
// when a goroutine is left over at the end.
func simulate(t *testing.T, n int, test func(t *testing.T, c *cluster), changes ...func(*config.Locks)) {
	t.Helper()
	settings := servers.Defaults(t).Locks
	settings.TTL, settings.Timeout = ttl, timeout
	for _, change := range changes {
		change(&settings)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, settings: settings}
		c.logger = slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for range n {
			c.servers = append(c.servers, &simulated{values: make(map[string]simulatedValue)})
		}
		c.locker, c.registry = c.process()
		test(t, c)
	})
}

// process returns the locker of another process, which shares the servers.
func (c *cluster) process() (*lock.Locker, *prometheus.Registry) {
	var clients []redis.UniversalClient
	for _, server := range c.servers {
		client := open(c.t, "redis://127.0.0.1:1/0") // where nothing goes
		client.AddHook(server)
		clients = append(clients, client)
	}
	registry := prometheus.NewRegistry()
	return lock.New(clients, "ns", c.settings, c.logger, registry), registry
}

// other returns a locker of another process.
func (c *cluster) other() *lock.Locker {
	locker, _ := c.process()
	return locker
}

// acquire takes locks that must be free.
func acquire(t *testing.T, l *lock.Locker, names ...string) (release func()) {
	t.Helper()
	release, err := l.Acquire(t.Context(), names...)
	if err != nil {
		t.Fatalf("got %v", err)
	}
	return release
}

// measured returns the value of a counter, or how often a histogram was observed, by its label.
func (c *cluster) measured(name, label string) int {
	c.t.Helper()
	return int(servers.Counted(c.t, c.registry, "triprize_lock_"+name, label))
}
