package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// lasting is for workers that beat once, and count as alive for longer than any test runs.
var lasting = config.Worker{HeartbeatInterval: servers.Patience, HeartbeatTTL: time.Hour}

// beat runs the Heartbeat of a new worker until end is called or the test ends, and returns when it is heard.
func (s *space) beat() (p *queue.Heartbeat, end func()) {
	s.t.Helper()
	id := uuid.NewString()
	p = queue.NewHeartbeat(s.rdb, s.namespace, queue.RoleWorker, id, lasting)
	end = run(p, servers.Logger(s.t))
	s.t.Cleanup(end)
	servers.Eventually(s.t, "the worker is heard", func() bool { return slices.Contains(s.present().Alive, id) })
	return p, end
}

// run runs a Heartbeat until end is called, which waits until Run has returned.
func run(p *queue.Heartbeat, logger *slog.Logger) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx, logger) })
	return func() {
		cancel()
		running.Wait()
	}
}

// present returns what is known of the workers of the namespace.
func (s *space) present() queue.Processes {
	s.t.Helper()
	roles, err := queue.ReadProcesses(s.t.Context(), s.rdb, s.namespace)
	servers.NoError(s.t, err)
	return roles[queue.RoleWorker]
}

func (s *space) processes() string { return s.namespace + ":processes" }

// age makes the processes of the namespace older, as when they have been silent for that long.
func (s *space) age(by time.Duration) {
	s.t.Helper()
	all, err := s.rdb.ZRangeWithScores(s.t.Context(), s.processes(), 0, -1).Result()
	if err != nil || len(all) == 0 {
		s.t.Fatal(all, err)
	}
	for _, one := range all {
		servers.NoError(s.t, s.rdb.ZIncrBy(s.t.Context(), s.processes(), -float64(by.Milliseconds()), one.Member.(string)).Err())
	}
}

// announce lets workers count as alive until some time from now.
func (s *space) announce(until time.Duration, ids ...string) {
	s.t.Helper()
	now, err := s.rdb.Time(s.t.Context()).Result()
	for _, id := range ids {
		if err == nil {
			err = s.rdb.ZAdd(s.t.Context(), s.processes(), redis.Z{Score: float64(now.Add(until).UnixMilli()), Member: "worker:" + id}).Err()
		}
	}
	servers.NoError(s.t, err)
}

func TestAWorkerBeatsAtIntervalsThoughBeatsFailOrHang(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		rdb, log := servers.Redis(t, settings), &servers.Journal{}
		var sent atomic.Int64
		var hangs atomic.Bool
		rdb.AddHook(servers.Before(func(ctx context.Context, _ redis.Cmder) error {
			if sent.Add(1); hangs.Load() {
				<-ctx.Done()
			}
			return errAway
		}))
		worker := queue.NewHeartbeat(rdb, "ns", queue.RoleWorker, "worker", config.Worker{HeartbeatInterval: time.Second, HeartbeatTTL: time.Minute})
		end := run(worker, slog.New(slog.NewTextHandler(log, nil)))
		for n := range int64(5) {
			synctest.Wait()
			if sent := sent.Load(); sent != n+1 {
				t.Errorf("after %d seconds it has beaten %d times", n, sent)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		hangs.Store(true)
		time.Sleep(5 * time.Second / 2) // one beat ends by its own limit
		began := time.Now()
		end()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it deregisters for %s", took)
		}
		if n := strings.Count(log.String(), "heartbeat not delivered"); n != 7 {
			t.Errorf("%d failures are logged", n)
		}
	})
}

// A worker that says nothing any more is stale for ten minutes, and then gone. One that ends deregisters.
func TestAWorkerIsAliveThenStaleThenGone(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	check := func(when string, alive, stale, kept int64) {
		t.Helper()
		p := s.present()
		if n, err := s.rdb.ZCard(t.Context(), s.processes()).Result(); err != nil || n != kept || len(p.Alive) != int(alive) || len(p.Stale) != int(stale) {
			t.Errorf("%s: %+v, %d are kept, %v", when, p, n, err)
		}
	}
	s.beat()
	check("at first", 1, 0, 1)
	s.age(time.Hour)
	check("after its time", 0, 1, 1)
	s.age(10 * time.Minute)
	check("ten minutes later", 0, 0, 1)
	_, end := s.beat()
	check("with another", 1, 0, 1)
	if rest, err := s.rdb.PTTL(t.Context(), s.processes()).Result(); err != nil || rest <= 0 || rest > time.Hour+10*time.Minute {
		t.Errorf("the set ends after %s, %v", rest, err)
	}
	if other := newSpace(t); len(other.present().Alive) > 0 {
		t.Error("it is heard in another namespace")
	}
	end()
	check("after its end", 0, 0, 0)
	if said := servers.Keys(t, s.rdb, s.namespace+":process:*"); len(said) != 1 { // of the one that fell silent
		t.Errorf("what it said is kept: %v", said)
	}
	dead := make([]string, 1200) // workers that die again and again do not fill Redis
	for i := range dead {
		dead[i] = fmt.Sprint(i)
	}
	s.announce(0, dead...)
	s.beat()
	check("with many dead", 1, 999, 1000)
	s.otherType(s.processes())
	s.beat()
	check("after its key was of another type", 1, 0, 1)
}

// Workers that die soon after each start beat once each: none of them is alive, and they are counted until one goes on.
func TestAWorkerIsAliveAfterTwoBeatsAndCrashesAreCounted(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	fleet := func() queue.Fleet {
		t.Helper()
		f, err := queue.ReadFleet(t.Context(), s.rdb, s.namespace)
		servers.NoError(t, err)
		return f
	}
	for range 3 { // a shutdown within a minute of the start is a crash, too
		_, end := s.beat()
		if alive := fleet().Named(queue.RoleWorker, queue.Alive); len(alive) != 0 || len(fleet().Named(queue.RoleWorker, queue.Starting)) != 1 {
			t.Errorf("after one beat %v are alive", alive)
		}
		end()
	}
	host, err := os.Hostname()
	servers.NoError(t, err)
	s.announce(-time.Minute, fmt.Sprintf("%s/%d/KILLED", host, os.Getpid()))
	lives := queue.NewHeartbeat(s.rdb, s.namespace, queue.RoleWorker, "lives", lasting)
	lives.Describe = func() queue.Description { return queue.Description{Version: "v7", Faults: []string{"draw_key_wrong"}} }
	for n := 1; n <= 30; n++ {
		servers.NoError(t, lives.Beat(t.Context()))
		if f := fleet(); n > 1 && (!slices.Equal(f.Named(queue.RoleWorker, queue.Alive), []string{"lives"}) || f.Processes[0].Version != "v7" || f.Processes[0].Faults[0] != "draw_key_wrong") || (f.Crashes == 0) != (n == 30) || n < 30 && f.Crashes != 4 {
			t.Errorf("after %d beats: %+v", n, f)
		}
	}
}

// A worker that was killed and its successor have the same host, and in a container the same pid, too.
func TestAWorkerForgetsThoseOfItsHostThatHaveEnded(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	host, err := os.Hostname()
	servers.NoError(t, err)
	ended := exec.Command("true")
	servers.NoError(t, ended.Run())
	id := func(host string, pid int) string { return fmt.Sprintf("%s/%d/ABCDEFGH", host, pid) }
	frozen, elsewhere := id(host, os.Getppid()), id("another-host", ended.Process.Pid)
	beating := fmt.Sprintf("%s/%d/BEATS", host, ended.Process.Pid) // of another container with the name of this host
	s.announce(-time.Minute, id(host, ended.Process.Pid), id(host, os.Getpid()), frozen, elsewhere)
	s.announce(time.Hour, beating)
	s.beat()
	servers.Eventually(t, "those that have ended are forgotten", func() bool { return len(s.present().Stale) <= 2 })
	p := s.present()
	if len(p.Stale) != 2 || !slices.Contains(p.Stale, frozen) || !slices.Contains(p.Stale, elsewhere) || !slices.Contains(p.Alive, beating) {
		t.Errorf("%+v, want %v and %v to be stale", p, frozen, elsewhere)
	}
}

// A worker may have been frozen for so long that another one has taken its task over.
func TestATaskThatWasTakenOverIsLeftToItsNewWorker(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	task := uuid.New()
	key := s.namespace + ":active-task:" + task.String()
	claim := func(worker *queue.Heartbeat, want bool) {
		t.Helper()
		if mine, err := worker.Acquire(t.Context(), task); err != nil || mine != want {
			t.Errorf("it has the task: %v, %v", mine, err)
		}
		if rest := s.rdb.PTTL(t.Context(), key).Val(); rest <= 0 || rest > time.Hour { // the TTL of heartbeats
			t.Errorf("its key ends after %s", rest)
		}
	}
	frozen := queue.NewHeartbeat(s.rdb, s.namespace, queue.RoleWorker, "frozen", lasting)
	claim(frozen, true)
	claim(frozen, false) // it runs already, as when two messages name one job
	lost := s.rdb.Get(t.Context(), key).Val()
	servers.NoError(t, frozen.Release(t.Context(), task, false))
	servers.NoError(t, s.rdb.Set(t.Context(), key, lost, time.Minute).Err())
	claim(frozen, true) // its own key, from a delivery before, whose release was lost
	if value := s.rdb.Get(t.Context(), key).Val(); value != "IN_PROGRESS frozen" {
		t.Errorf("its key has %q", value)
	}
	heir, _ := s.beat()
	claim(heir, true)
	servers.NoError(t, frozen.Release(t.Context(), task, true))
	claim(frozen, false)
	for _, goesBack := range []bool{true, false} {
		servers.NoError(t, heir.Release(t.Context(), task, goesBack))
		claim(frozen, true)
		claim(heir, true)
		servers.NoError(t, frozen.Release(t.Context(), task, false))
	}
	servers.NoError(t, heir.Release(t.Context(), task, false))
	s.otherType(key)
	claim(heir, true)
}

// A release may be lost, and with it what asynq has written of the task: then only the end of the key frees the task.
func TestHeartbeatsRenewTheKeysOfHeldTasksOnly(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	key := func(task uuid.UUID) string { return s.namespace + ":active-task:" + task.String() }
	worker := queue.NewHeartbeat(s.rdb, s.namespace, queue.RoleWorker, "worker", lasting)
	held, expired, released := uuid.New(), uuid.New(), uuid.New() // expired while Redis was away
	for _, task := range []uuid.UUID{held, expired, released} {
		_, err := worker.Acquire(t.Context(), task)
		servers.NoError(t, err)
		servers.NoError(t, s.rdb.PExpire(t.Context(), key(task), time.Minute).Err())
	}
	servers.NoError(t, worker.Release(t.Context(), released, false))
	servers.NoError(t, s.rdb.Del(t.Context(), key(expired)).Err())
	servers.NoError(t, s.rdb.Set(t.Context(), key(released), "IN_PROGRESS worker", time.Minute).Err())
	t.Cleanup(run(worker, servers.Logger(t)))
	servers.Eventually(t, "the keys of held tasks are renewed, or set again", func() bool {
		return s.rdb.PTTL(t.Context(), key(held)).Val() > time.Minute && s.rdb.Get(t.Context(), key(expired)).Val() == "IN_PROGRESS worker"
	})
	if rest := s.rdb.PTTL(t.Context(), key(released)).Val(); rest > time.Minute {
		t.Errorf("the key of the released task ends after %s", rest)
	}
}
