package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
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

// beat runs the Heartbeat of a new worker until the test ends. It beats once, and is
// heard for longer than any test runs.
func (s *space) beat() *queue.Heartbeat {
	s.t.Helper()
	p, _ := s.beatUntil(s.rdb, servers.Patience, time.Hour)
	return p
}

// beatUntil runs the Heartbeat of a new worker on a client of its own, until
// end is called, which waits until Run has returned.
func (s *space) beatUntil(rdb *redis.Client, every, ttl time.Duration) (p *queue.Heartbeat, end func()) {
	p = queue.NewHeartbeat(rdb, s.namespace, uuid.NewString(), config.Worker{HeartbeatInterval: every, HeartbeatTTL: ttl})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx, servers.Logger(s.t))
	}()
	end = func() {
		cancel()
		<-done
	}
	s.t.Cleanup(end)
	return p, end
}

// heard returns the only worker that is alive in the namespace; empty when none is.
func (s *space) heard() string {
	s.t.Helper()
	alive := s.present().Alive
	if len(alive) > 1 {
		s.t.Fatal(alive)
	}
	return strings.Join(alive, "")
}

// present returns what is known of the workers of the namespace.
func (s *space) present() queue.Processes {
	s.t.Helper()
	roles, err := queue.ReadProcesses(s.t.Context(), s.rdb, s.namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	return roles[queue.RoleWorker]
}

// age makes the processes of the namespace older, as when they have been silent for that long.
func (s *space) age(by time.Duration) {
	s.t.Helper()
	key := s.namespace + ":processes"
	all, err := s.rdb.ZRangeWithScores(s.t.Context(), key, 0, -1).Result()
	if err != nil || len(all) == 0 {
		s.t.Fatal(all, err)
	}
	for _, one := range all {
		if err := s.rdb.ZIncrBy(s.t.Context(), key, -float64(by.Milliseconds()), one.Member.(string)).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// beats counts the beats of workers, which go nowhere; each second one fails.
type beats struct{ sent atomic.Int64 }

func (*beats) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *beats) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && b.sent.Add(1)%2 == 0 {
			cmd.SetErr(errAway)
		}
		return cmd.Err()
	}
}

func (*beats) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAWorkerBeatsAtIntervalsThoughBeatsFail(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		rdb, counted, log := servers.Redis(t, settings), &beats{}, &servers.Journal{}
		rdb.AddHook(counted)
		ctx, end := context.WithCancel(t.Context())
		go queue.NewHeartbeat(rdb, "ns", "worker", config.Worker{HeartbeatInterval: time.Second, HeartbeatTTL: time.Minute}).Run(ctx, slog.New(slog.NewTextHandler(log, nil)))
		for n := range int64(5) {
			synctest.Wait()
			if sent := counted.sent.Load(); sent != n+1 {
				t.Errorf("after %d seconds it has beaten %d times", n, sent)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second / 2)
		end()
		synctest.Wait()
		if n := strings.Count(log.String(), "heartbeat not delivered"); n != 3 {
			t.Errorf("%d failures are logged", n)
		}
	})
}

// A worker that says nothing any more is silent for ten minutes, and then gone.
func TestAWorkerThatDoesNotBeatIsSilentAndThenGone(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.beat()
	servers.Eventually(t, "the worker is heard", func() bool { return s.heard() != "" })
	id := s.heard()
	s.age(time.Hour)
	if p := s.present(); len(p.Alive) > 0 || len(p.Stale) != 1 || p.Stale[0] != id {
		t.Errorf("after its time it is %+v", p)
	}
	s.age(10 * time.Minute)
	if p := s.present(); len(p.Alive)+len(p.Stale) > 0 {
		t.Errorf("ten minutes later it is %+v", p)
	}
	s.beat() // of another
	servers.Eventually(t, "another worker is heard", func() bool { return s.heard() != "" })
	if n, err := s.rdb.ZCard(t.Context(), s.namespace+":processes").Result(); err != nil || n != 1 {
		t.Errorf("%d processes are kept, %v", n, err)
	}
	if rest, err := s.rdb.PTTL(t.Context(), s.namespace+":processes").Result(); err != nil || rest <= 0 || rest > time.Hour+10*time.Minute {
		t.Errorf("the set ends after %s, %v", rest, err)
	}
}

// A worker that was killed and its successor have the same host, and in a container the same pid, too.
func TestAWorkerForgetsThoseOfItsHostThatHaveEnded(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	id := func(host string, pid int) string { return fmt.Sprintf("%s/%d/ABCDEFGH", host, pid) }
	frozen, elsewhere := id(host, os.Getppid()), id("another-host", ended.Process.Pid)
	beating := fmt.Sprintf("%s/%d/BEATS", host, ended.Process.Pid) // of another container with the name of this host
	for _, dead := range []string{id(host, ended.Process.Pid), id(host, os.Getpid()), frozen, elsewhere} {
		s.announced(dead, -time.Minute)
	}
	s.announced(beating, time.Hour)
	s.beat()
	servers.Eventually(t, "the worker is heard", func() bool { return len(s.present().Alive) == 2 })
	servers.Eventually(t, "those that have ended are forgotten", func() bool { return len(s.present().Stale) <= 2 })
	p := s.present()
	slices.Sort(p.Stale)
	want := []string{frozen, elsewhere}
	slices.Sort(want)
	if !slices.Equal(p.Stale, want) || !slices.Contains(p.Alive, beating) {
		t.Errorf("%+v, want %v to be silent", p, want)
	}
}

// announced lets a worker count as alive until some time from now.
func (s *space) announced(id string, until time.Duration) {
	s.t.Helper()
	now, err := s.rdb.Time(s.t.Context()).Result()
	if err == nil {
		err = s.rdb.ZAdd(s.t.Context(), s.namespace+":processes", redis.Z{Score: float64(now.Add(until).UnixMilli()), Member: "worker:" + id}).Err()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// Workers that die again and again do not fill Redis.
func TestOnlyAThousandProcessesAreKept(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	now, err := s.rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	dead := make([]redis.Z, 1200)
	for i := range dead {
		dead[i] = redis.Z{Score: float64(now.UnixMilli()), Member: fmt.Sprint("worker:", i)}
	}
	if err := s.rdb.ZAdd(t.Context(), s.namespace+":processes", dead...).Err(); err != nil {
		t.Fatal(err)
	}
	s.beat()
	servers.Eventually(t, "the worker is heard", func() bool { return s.heard() != "" })
	if n, err := s.rdb.ZCard(t.Context(), s.namespace+":processes").Result(); err != nil || n != 1000 {
		t.Errorf("%d processes are kept, %v", n, err)
	}
}

func TestAWorkerThatEndsSaysFarewell(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	_, end := s.beatUntil(s.rdb, servers.Patience, time.Hour)
	servers.Eventually(t, "the worker is heard", func() bool { return s.heard() != "" })
	end()
	if p := s.present(); len(p.Alive)+len(p.Stale) > 0 {
		t.Errorf("after its end it is %+v", p)
	}
}

func TestAWorkerIsHeardAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	settings, redisServer := privateRedis(t)
	s := newSpaceOn(t, settings)
	s.beatUntil(s.rdb, 100*time.Millisecond, time.Hour)
	servers.Eventually(t, "the worker is heard", func() bool { return s.heard() != "" })
	redisServer.Kill() // it keeps nothing
	if err := redisServer.Start(); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the worker is heard again", func() bool {
		roles, err := queue.ReadProcesses(t.Context(), s.rdb, s.namespace)
		return err == nil && len(roles[queue.RoleWorker].Alive) == 1
	})
}

func TestAFarewellDoesNotWaitForASilentRedis(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = silent(t)
	settings.Redis.Timeout = time.Hour // only the farewell's own limit ends it
	s := newSpaceOn(t, settings)
	_, end := s.beatUntil(s.rdb, 50*time.Millisecond, time.Minute)
	end()
}

func TestKeysOfHeartbeatsAreThoseOfItsNamespace(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	p := s.beat()
	task := uuid.New()
	if _, err := p.Acquire(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the worker is heard", func() bool { return s.heard() != "" })
	worker := s.heard()
	if has, err := s.rdb.Get(t.Context(), s.namespace+":active-task:"+task.String()).Result(); err != nil || has != "IN_PROGRESS "+worker {
		t.Errorf("%s has the task, not %s, %v", has, worker, err)
	}
	// Another namespace on the same Redis sees none of it.
	other := newSpace(t)
	if id := other.heard(); id != "" {
		t.Errorf("heard elsewhere: %s", id)
	}
}

// A worker that dies, and one that cannot reach Redis when its task is done, leave the
// record of it behind.
func TestARecordOfATaskEndsByItself(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	worker, task := s.beat(), s.enqueue(purchase)
	s.handOut(task)
	if _, err := worker.Acquire(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the task is held", func() bool { return s.states(task)[task] == queue.Active })
	keys, err := s.rdb.Keys(t.Context(), s.namespace+":active*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if rest, err := s.rdb.PTTL(t.Context(), keys[0]).Result(); err != nil || rest <= 0 || rest > time.Hour {
		t.Errorf("it ends after %s, %v; a task goes back to the queue after an hour", rest, err)
	}
	if err := s.rdb.PExpire(t.Context(), keys[0], time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "nobody has the task", func() bool { return s.states(task)[task] == queue.Orphaned })
}

// A worker may have been frozen for so long that another one has taken its task over.
func TestATaskThatWasTakenOverIsLeftToItsNewWorker(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	frozen := queue.NewHeartbeat(s.rdb, s.namespace, "frozen", config.Worker{})
	task := uuid.New()
	claim := func(worker *queue.Heartbeat, want bool) {
		t.Helper()
		if mine, err := worker.Acquire(t.Context(), task); err != nil || mine != want {
			t.Errorf("it has the task: %v, %v", mine, err)
		}
	}
	claim(frozen, true)
	claim(frozen, true) // its own key, from a delivery before
	heir := s.beat()
	servers.Eventually(t, "the heir is heard", func() bool { return s.heard() != "" })
	claim(heir, true)
	if err := frozen.Release(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	claim(frozen, false)
	if err := heir.Release(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	claim(frozen, true)
	if rest := s.rdb.PTTL(t.Context(), s.namespace+":active-task:"+task.String()).Val(); rest <= 0 || rest > time.Hour {
		t.Errorf("it ends after %s", rest)
	}
}
