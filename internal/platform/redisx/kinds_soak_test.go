//go:build soak

package redisx_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

// The tests of what has keys in Redis, and of all that workers and sweeps do with it, on other kinds of servers.
func TestSentinelAndAClusterCarryEverythingThatOneServerDoes(t *testing.T) {
	packages := []string{"platform/queue", "job", "job/delivery", "platform/ratelimit", "platform/lock", "platform/sweep", "entry/upkeep", "entry/worker"}
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

// Servers are frozen one after the other, as when their hosts are lost, until a question must not be asked any more.
func TestWhatAFailoverWouldLackIsKnown(t *testing.T) {
	for kind, faults := range map[string][][2]string{ // what is frozen, and what is said
		devstack.RedisSentinel: {{"replica", ""}, {"replica", "no replica is connected"}, {"thawed", ""}, {"sentinel", "does not answer as it should: "}, {"seen from one", "a Sentinel is away: "}, {"sentinel", "NOQUORUM"}, {"thawed", ""}},
		devstack.RedisCluster:  {{"replica", "no replica is connected to 127.0.0.1:"}, {"thawed", ""}},
	} {
		t.Run(kind, func(t *testing.T) {
			stack, err := devstack.Start(t.Context(), devstack.Options{Unsafe: true, Redis: kind})
			servers.NoError(t, err)
			t.Cleanup(func() { servers.NoError(t, stack.Stop()) })
			settings, frozen := servers.Defaults(t), []int{}
			settings.Redis.URL = stack.RedisURL()
			rdb := servers.Redis(t, settings)
			kinds, err := settings.Redis.Servers()
			servers.NoError(t, err)
			at := map[string][]string{}
			var one redis.UniversalClient
			if kind == devstack.RedisSentinel {
				at["all"], at["sentinel"] = kinds.Sentinel.SentinelAddrs[:1], kinds.Sentinel.SentinelAddrs[1:]
				one = redis.NewClient(&redis.Options{Addr: kinds.Sentinel.SentinelAddrs[0], Username: kinds.Sentinel.SentinelUsername, Password: kinds.Sentinel.SentinelPassword})
				replicas, err := one.Do(t.Context(), "SENTINEL", "REPLICAS", kinds.Sentinel.MasterName).Slice()
				servers.NoError(t, err)
				for _, replica := range replicas {
					at["replica"] = append(at["replica"], replica.(map[any]any)["name"].(string))
				}
			} else {
				one = rdb
				nodes := one.ClusterNodes(t.Context()).Val()
				at["replica"] = []string{regexp.MustCompile(`(\S+)@\S+ slave`).FindStringSubmatch(nodes)[1]}
				for _, line := range regexp.MustCompile(`(\S+)@`).FindAllStringSubmatch(nodes, -1) {
					at["all"] = append(at["all"], line[1])
				}
			}
			lacks := func() (string, error) {
				ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
				if len(frozen) > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				return redisx.Lacks(ctx, settings.Redis, rdb)
			}
			servers.Eventually(t, "nothing is lacking", func() bool { text, err := lacks(); return text == "" && err == nil })
			for _, fault := range faults {
				switch what := fault[0]; what {
				case "thawed":
					for _, pid := range frozen {
						servers.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
					}
					frozen = nil
				case "seen from one":
					settings.Redis.URL = regexp.MustCompile(`addr=[^&]*&`).ReplaceAllString(settings.Redis.URL, "")
				default:
					server := redis.NewClient(&redis.Options{Addr: at[what][0], Username: "default", Password: password(settings.Redis.URL)})
					pid, err := strconv.Atoi(server.InfoMap(t.Context(), "server").Item("Server", "process_id"))
					servers.NoError(t, errors.Join(err, server.Close(), syscall.Kill(pid, syscall.SIGSTOP)))
					t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
					at[what], frozen = at[what][1:], append(frozen, pid)
				}
				servers.Eventually(t, fmt.Sprint(fault), func() bool {
					text, err := lacks()
					return err == nil && (text == "") == (fault[1] == "") && strings.Contains(text, fault[1])
				})
			}
			asked := "-sentinel"
			if kind == devstack.RedisCluster {
				asked = "-cluster|nodes"
			}
			for _, address := range at["all"] { // not those that the client knows: it may have forgotten the server that was frozen
				server := redis.NewClient(&redis.Options{Addr: address, Username: "default", Password: password(settings.Redis.URL)})
				servers.NoError(t, errors.Join(server.Do(t.Context(), "ACL", "SETUSER", "default", asked).Err(), server.Close()))
			}
			if text, err := lacks(); !redis.IsPermissionError(err) || text != "" {
				t.Errorf("a user that may not ask: %q, %v", text, err)
			}
		})
	}
}

func password(text string) string {
	u, _ := url.Parse(text)
	pw, _ := u.User.Password()
	return pw
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
