package queue_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// handOut lets asynq hand purchase tasks to a server whose handler holds them
// until the test ends, and returns when it has all of them.
func (s *space) handOut(ids ...uuid.UUID) {
	s.t.Helper()
	handed, end := make(chan uuid.UUID, len(ids)), make(chan struct{})
	s.serve(func(_ context.Context, t queue.Task, _ bool) error {
		handed <- t.ID
		<-end
		return nil
	})
	s.t.Cleanup(func() { close(end) })
	for range ids {
		if id := receive(s.t, handed); !slices.Contains(ids, id) {
			s.t.Fatalf("%s was handed out", id)
		}
	}
}

// What asynq has handed out is in good hands only with a worker that is alive.
func TestATaskIsFoundWhereItIs(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	unknown := uuid.New()
	if state, ok := s.states(unknown)[unknown]; state != queue.Missing || !ok {
		t.Errorf("in a queue that does not exist it is %v, %v", state, ok)
	}
	retried := s.enqueue(purchase)
	failing := s.serve(func(context.Context, queue.Task, bool) error {
		return queue.SnoozeFor(errors.New("not done"), time.Hour)
	})
	servers.Eventually(t, "asynq waits before it tries again", func() bool { return s.info(retried).State == asynq.TaskStateRetry })
	failing.Shutdown()
	archived := s.enqueue(purchase)
	servers.NoError(t, s.inspector.ArchiveTask(queue.Name(s.namespace, purchase), archived.String()))
	stopped, _ := s.beat()
	s.age(time.Hour)
	live, _ := s.beat()
	unheard := queue.NewHeartbeat(s.rdb, s.namespace, queue.RoleWorker, "never heard of", config.Worker{})
	names := map[uuid.UUID]string{unknown: "unknown", retried: "retried", archived: "archived"}
	want := map[string]queue.TaskState{"unknown": queue.Missing, "retried": queue.Pending, "archived": queue.Orphaned}
	note := func(name string, id uuid.UUID, worker *queue.Heartbeat, state queue.TaskState) uuid.UUID {
		t.Helper()
		if worker != nil {
			if mine, err := worker.Acquire(t.Context(), id); err != nil || !mine {
				t.Fatal(mine, err)
			}
		}
		names[id], want[name] = name, state
		return id
	}
	active := []uuid.UUID{
		note("of a stopped worker", s.enqueue(purchase), stopped, queue.Orphaned),
		note("of a live worker", s.enqueue(purchase), live, queue.Active),
		note("of nobody", s.enqueue(purchase), nil, queue.Orphaned),
		note("of a worker that is unheard", s.enqueue(purchase), unheard, queue.Orphaned),
		note("released", s.enqueue(purchase), live, queue.Orphaned),
		note("forgotten", s.enqueue(purchase), live, queue.Orphaned),
		note("going back to the queue", s.enqueue(purchase), live, queue.Active),
	}
	s.handOut(active...)
	note("scheduled", s.unrung(purchase, asynq.ProcessIn(time.Hour)), stopped, queue.Pending) // delivered once, and in the queue again
	servers.NoError(t, s.inspector.PauseQueue(queue.Name(s.namespace, purchase)))
	note("pending", s.enqueue(purchase), nil, queue.Pending)
	lost := note("pending without a message", s.enqueue(purchase), nil, queue.Missing)
	unlisted := note("pending but in no list", s.enqueue(purchase), nil, queue.Missing)
	for _, err := range []error{
		live.Release(t.Context(), active[4], false),
		live.Release(t.Context(), active[6], true),
		s.finder.Forget(t.Context(), purchase, map[uuid.UUID]queue.TaskState{active[5]: queue.Orphaned}),
		s.finder.Forget(t.Context(), purchase, nil),
		s.rdb.HDel(t.Context(), s.key("t:"+lost.String()), "msg").Err(),
		s.rdb.LRem(t.Context(), s.key("pending"), 0, unlisted.String()).Err(),
	} {
		servers.NoError(t, err)
	}
	got := make(map[string]queue.TaskState)
	for id, state := range s.states(slices.Collect(maps.Keys(names))...) {
		got[names[id]] = state
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v,\nwant %v", got, want)
	}
	servers.NoError(t, s.finder.Forget(t.Context(), purchase, map[uuid.UUID]queue.TaskState{unlisted: queue.Missing}))
	if n := s.rdb.Exists(t.Context(), s.key("t:"+unlisted.String())).Val(); n != 0 {
		t.Error("a missing task that is forgotten is still in asynq's way")
	}
}

func TestATaskIsNotGoneBecauseRedisCannotSay(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	id := s.enqueue(purchase)
	for _, command := range []string{"lrange", "hget", "zscore", "get", "evalsha"} {
		shaken := newSpaceOn(t, s.settings)
		shaken.rdb.AddHook(servers.Before(func(_ context.Context, cmd redis.Cmder) error {
			if cmd.Name() == command {
				return errAway
			}
			return nil
		}))
		if states, err := shaken.finder.Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
			t.Errorf("when Redis goes away before %s: %v", command, states)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if states, err := s.finder.Find(ended, purchase, []uuid.UUID{id}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v, %v", states, err)
	}
}

// A task in hand whose lease is over, or was never given, is without one.
func TestTasksWithoutALeaseAreCounted(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	servers.NoError(t, s.rdb.LPush(t.Context(), s.key("active"), "lost", "over", "held").Err())
	for id, rest := range map[string]time.Duration{"over": -time.Hour, "held": time.Hour} {
		until := float64(time.Now().Add(rest).Unix())
		servers.NoError(t, s.rdb.ZAdd(t.Context(), s.key("lease"), redis.Z{Score: until, Member: id}).Err())
	}
	unleased, err := queue.CountUnleased(t.Context(), s.rdb, s.namespace, []string{draw, purchase})
	if err != nil || !slices.Equal(unleased, []int64{0, 2}) {
		t.Errorf("%v of tasks, %v", unleased, err)
	}
}
