//go:build soak

package redisx_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

// The tests of what has keys in Redis, and of all that workers and sweeps do with it, on other kinds of servers.
func TestSentinelAndAClusterCarryEverythingThatOneServerDoes(t *testing.T) {
	packages := []string{"platform/queue", "job", "platform/idempotency", "platform/ratelimit", "platform/lock", "platform/sweep", "entry/upkeep", "entry/worker"}
	for kind, packages := range map[string][]string{devstack.RedisCluster: packages, devstack.RedisSentinel: packages[:2]} { // Sentinel's client is that of one server
		t.Run(kind, func(t *testing.T) {
			stack, err := devstack.Start(t.Context(), devstack.Options{Unsafe: true, Redis: kind})
			servers.NoError(t, err)
			t.Cleanup(func() { servers.NoError(t, stack.Stop()) })
			settings := servers.Patient(servers.Defaults(t))
			settings.Redis.URL = stack.RedisURL()
			servers.NoError(t, redisx.CheckKind(t.Context(), servers.Redis(t, settings)))
			settings.Redis.URL = strings.Replace(stack.RedisURL(), "master_name=", "master_name=not", 1)
			if kind == devstack.RedisCluster {
				settings.Redis.URL = stack.Redis.URL() // of one node
			}
			if err := redisx.CheckKind(t.Context(), servers.Redis(t, settings)); !errors.Is(err, redisx.ErrKind) {
				t.Errorf("%s: %v", settings.Redis.URL, err)
			}
			args := []string{"test", "-tags", "failpoint", "-vet=off", "-count=1", "-timeout", "120m",
				"-skip", "^TestTheAuditFindsEveryViolation$"} // the longest, and it asks Postgres alone
			for _, name := range packages {
				args = append(args, "./internal/"+name)
			}
			run := exec.CommandContext(t.Context(), "go", args...)
			run.Dir = "../../.."
			run.Env = append(os.Environ(), servers.PostgresVariable+"="+stack.PostgresURL("postgres"), servers.RedisVariable+"="+stack.RedisURL())
			if out, err := run.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The Sentinel that the client asks is frozen, as when its host is lost, and the primary is killed.
func TestAnotherSentinelIsAskedForThePrimary(t *testing.T) {
	stack, err := devstack.Start(t.Context(), devstack.Options{Unsafe: true, Redis: devstack.RedisSentinel})
	servers.NoError(t, err)
	t.Cleanup(func() { servers.NoError(t, stack.Stop()) })
	settings := servers.Defaults(t)
	settings.Redis.URL = stack.RedisURL()
	rdb := servers.Redis(t, settings)
	servers.NoError(t, rdb.Set(t.Context(), "key", "value", 0).Err())
	kinds, err := settings.Redis.Servers()
	servers.NoError(t, err)
	frozen := 0
	for _, address := range kinds.Sentinel.SentinelAddrs {
		sentinel := redis.NewClient(&redis.Options{Addr: address, Username: kinds.Sentinel.SentinelUsername, Password: kinds.Sentinel.SentinelPassword})
		if clients, err := sentinel.ClientList(t.Context()).Result(); err != nil || strings.Contains(clients, "name=triprize-test") {
			servers.NoError(t, err)
			frozen, err = strconv.Atoi(sentinel.InfoMap(t.Context(), "server").Item("Server", "process_id"))
			servers.NoError(t, err)
		}
		servers.NoError(t, sentinel.Close())
	}
	servers.NoError(t, syscall.Kill(frozen, syscall.SIGSTOP))
	t.Cleanup(func() { servers.NoError(t, syscall.Kill(frozen, syscall.SIGCONT)) })
	_, primary := stack.Primaries("")
	servers.NoError(t, syscall.Kill(primary, syscall.SIGKILL))
	servers.Eventually(t, "another primary is found", func() bool { return rdb.Set(t.Context(), "key", "value", 0).Err() == nil }) // a client that keeps to its Sentinel finds none
}
