//go:build soak

package devstack

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// several opens a client of a Sentinel's or Cluster's URL until the test ends.
func several(t *testing.T, s *Stack) redis.UniversalClient {
	t.Helper()
	address := strings.Replace(s.RedisURL(), "+"+s.kind, "", 1)
	var client redis.UniversalClient
	if s.kind == RedisCluster {
		opts, err := redis.ParseClusterURL(address)
		noError(t, err)
		client = redis.NewClusterClient(opts)
	} else {
		opts, err := redis.ParseFailoverURL(address)
		noError(t, err)
		client = redis.NewFailoverClient(opts)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const tag = "triprize-purchase"

// names are those of the primaries; each has its standby or replicas.
func (s *Stack) names(t *testing.T) (names [2]string) {
	t.Helper()
	primary, standby := s.roles()
	postgres, cache := s.Primaries(tag)
	sync, err := primary.holds(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')`)
	if err != nil || !sync || postgres == 0 || cache == 0 || !standby.isStandby() {
		return names
	}
	g := s.groupOf(tag)
	for _, r := range g.servers {
		if s.inPlace(t.Context(), r) != nil {
			return names
		}
	}
	return [2]string{primary.Name, g.primary.Load().Name}
}

func TestAKilledPrimaryComesBackAsTheReplicaOfItsSuccessor(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{RedisSentinel, RedisCluster} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			opts := Options{Dir: openDir(t), Unsafe: true, Restart: 50 * time.Millisecond, Redis: kind, Postgres: PostgresStandby}
			s := begin(t, opts)
			before := s.names(t)
			if before[0] == "" || before[1] == "" {
				t.Fatalf("at the start the primaries are %v", before)
			}
			cache := several(t, s)
			noError(t, cache.Set(t.Context(), "{"+tag+"}kept", "still here", 0).Err())
			noError(t, cache.Do(t.Context(), "WAIT", "1", "0").Err())
			ask(t, s.PostgresURL("postgres"), `CREATE TABLE kept AS SELECT 'still here' AS what`, `SELECT what FROM kept`)

			pid, cachePID := s.Primaries(tag)
			for _, doomed := range []int{pid, cachePID} {
				noError(t, syscall.Kill(doomed, syscall.SIGKILL))
			}
			var after [2]string
			eventually(t, "others are the primaries, with replicas", func() bool {
				after = s.names(t)
				return after[0] != "" && after[0] != before[0] && after[1] != before[1]
			})
			recalledBy(t, s, cache)

			primary, standby := s.roles() // a crash of both
			noError(t, syscall.Kill(primary.PID(), syscall.SIGKILL))
			noError(t, syscall.Kill(standby.PID(), syscall.SIGKILL))
			<-primary.Exited()
			eventually(t, "both are back", func() bool { return s.names(t) != [2]string{} })
			recalledBy(t, s, cache)
			after = s.names(t)

			pids := s.PIDs()
			noError(t, s.Stop())
			for _, pid := range pids {
				if exists(pid) {
					t.Errorf("process %d is still there", pid)
				}
			}
			s = begin(t, opts)
			if again := s.names(t); again != after {
				t.Errorf("the primaries were %v, and after another start are %v", after, again)
			}
			recalledBy(t, s, several(t, s))
			noError(t, s.Stop())
			alone := begin(t, Options{Dir: opts.Dir, Unsafe: true}) // it has the data of the last primary, and waits for no standby
			ask(t, alone.PostgresURL("postgres"), `INSERT INTO kept VALUES ('more')`, `SELECT max(what) FROM kept`)
		})
	}
}

func recalledBy(t *testing.T, s *Stack, cache redis.UniversalClient) {
	t.Helper()
	if got := ask(t, s.PostgresURL("postgres"), `SELECT what FROM kept`); got != "still here" {
		t.Errorf("Postgres has %q", got)
	}
	var got string
	var err error
	eventually(t, "the client finds the primary", func() bool {
		got, err = cache.Get(context.Background(), "{"+tag+"}kept").Result()
		return err == nil || err == redis.Nil
	})
	if got != "still here" {
		t.Errorf("Redis has %q, %v", got, err)
	}
}
