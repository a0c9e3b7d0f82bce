//go:build soak

package devstack

import (
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const tag = "triprize-purchase"

// holder opens a client of the primary that has the tag's keys.
func holder(t *testing.T, s *Stack) *redis.Client {
	t.Helper()
	return cache(t, s.groupOf(tag).primary.Load().URL())
}

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
			conn := holder(t, s).Conn() // WAIT is for the writes of its connection
			defer func() { _ = conn.Close() }()
			noError(t, conn.Set(t.Context(), "{"+tag+"}kept", "still here", 0).Err())
			noError(t, conn.Do(t.Context(), "WAIT", "1", "0").Err())
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
			recalledBy(t, s)

			primary, standby := s.roles() // a crash of both
			noError(t, syscall.Kill(primary.PID(), syscall.SIGKILL))
			noError(t, syscall.Kill(standby.PID(), syscall.SIGKILL))
			<-primary.Exited()
			eventually(t, "both are back", func() bool { return s.names(t) != [2]string{} })
			recalledBy(t, s)
			after = s.names(t)

			noError(t, s.Stop())
			s = begin(t, opts)
			if again := s.names(t); again != after {
				t.Errorf("the primaries were %v, and after another start are %v", after, again)
			}
			recalledBy(t, s)
			noError(t, s.Stop())
			alone := begin(t, Options{Dir: opts.Dir, Unsafe: true}) // it has the data of the last primary, and waits for no standby
			ask(t, alone.PostgresURL("postgres"), `INSERT INTO kept VALUES ('more')`, `SELECT max(what) FROM kept`)
		})
	}
}

func recalledBy(t *testing.T, s *Stack) {
	t.Helper()
	if got := ask(t, s.PostgresURL("postgres"), `SELECT what FROM kept`); got != "still here" {
		t.Errorf("Postgres has %q", got)
	}
	if got, err := holder(t, s).Get(t.Context(), "{"+tag+"}kept").Result(); err != nil || got != "still here" {
		t.Errorf("Redis has %q, %v", got, err)
	}
}
