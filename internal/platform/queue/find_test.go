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

func TestATaskThatWillBeDeliveredIsWaiting(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	retried := s.enqueue(purchase)
	server := s.serve(func(context.Context, queue.Task, bool) error { return errors.New("not done") })
	servers.Eventually(t, "asynq waits before it tries again", func() bool { return s.info(retried).State == asynq.TaskStateRetry })
	server.Shutdown()
	for id, state := range map[uuid.UUID]asynq.TaskState{
		retried: asynq.TaskStateRetry, s.enqueue(purchase): asynq.TaskStatePending, s.schedule(): asynq.TaskStateScheduled,
	} {
		if s := s.info(id).State; s != state {
			t.Fatalf("asynq says %v, want %v: the test does not test", s, state)
		}
		if state := s.states(id)[id]; state != queue.Pending {
			t.Errorf("a task that is %v is %v", state, state)
		}
	}
}

func TestATaskThatNobodyWillDeliverIsGoneOrAbandoned(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	unknown := uuid.New()
	if state, ok := s.states(unknown)[unknown]; state != queue.Missing || !ok {
		t.Errorf("in a queue that does not exist it is %v, %v", state, ok)
	}
	archived := s.enqueue(purchase)
	if err := s.inspector.ArchiveTask(queue.Name(s.namespace, purchase), archived.String()); err != nil {
		t.Fatal(err)
	}
	states := s.states(unknown, archived)
	if state, ok := states[unknown]; state != queue.Missing || !ok {
		t.Errorf("an unknown task is %v, %v", state, ok)
	}
	if state, ok := states[archived]; state != queue.Orphaned || !ok { // it was delivered
		t.Errorf("an archived task is %v, %v", state, ok)
	}
}

// What asynq has handed out is in good hands only with a worker that is heard.
func TestTasksHandedOutAreToldApartByTheirWorkers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	stopped := s.beat()
	servers.Eventually(t, "the worker is heard", func() bool { return s.heard() != "" })
	s.age(time.Hour)
	live := s.beat()
	servers.Eventually(t, "another worker is heard", func() bool { return s.heard() != "" })
	unheard := queue.NewHeartbeat(s.rdb, s.namespace, "never heard of", config.Worker{})
	var active []uuid.UUID
	want := make(map[uuid.UUID]queue.TaskState)
	note := func(id uuid.UUID, worker *queue.Heartbeat, state queue.TaskState) {
		if worker != nil {
			if _, err := worker.Acquire(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		want[id] = state
	}
	for _, c := range []struct {
		worker *queue.Heartbeat
		state  queue.TaskState
	}{{stopped, queue.Orphaned}, {live, queue.Active}, {nil, queue.Orphaned}, {unheard, queue.Orphaned}, {live, queue.Active}} {
		id := s.enqueue(purchase)
		active = append(active, id)
		note(id, c.worker, c.state)
	}
	note(s.schedule(), stopped, queue.Pending) // delivered once, and in the queue again
	s.handOut(active...)
	ids := append(slices.Collect(maps.Keys(want)), uuid.New())
	want[ids[len(ids)-1]] = queue.Missing
	got := s.states(ids...)
	for i, id := range active {
		if got[id] != want[id] {
			t.Errorf("active task %d is %v, want %v", i, got[id], want[id])
		}
	}
	for id, state := range want {
		if found, ok := got[id]; found != state || !ok {
			t.Errorf("got %v, %v, want %v", found, ok, state)
		}
	}
}

func TestATaskIsNoLongerActiveOnceItIsFinishedOrForgotten(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	dropped, forgotten, kept := s.enqueue(purchase), s.enqueue(purchase), s.enqueue(purchase)
	s.handOut(dropped, forgotten, kept)
	p := s.beat()
	for _, id := range []uuid.UUID{dropped, forgotten, kept} {
		if _, err := p.Acquire(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		servers.Eventually(t, "the task is held", func() bool { return s.states(id)[id] == queue.Active })
	}
	if err := p.Release(t.Context(), dropped); err != nil {
		t.Fatal(err)
	}
	if err := s.finder.Forget(t.Context(), purchase, map[uuid.UUID]queue.TaskState{forgotten: queue.Orphaned}); err != nil {
		t.Fatal(err)
	}
	if err := s.finder.Forget(t.Context(), purchase, nil); err != nil {
		t.Errorf("forgetting nothing: %v", err)
	}
	states := s.states(dropped, forgotten, kept)
	if states[dropped] != queue.Orphaned || states[forgotten] != queue.Orphaned || states[kept] != queue.Active {
		t.Errorf("dropped %v, forgotten %v, kept %v", states[dropped], states[forgotten], states[kept])
	}
}

// refusing fails the commands of a name or on a key, as a Redis does that goes away just then.
type refusing struct{ command string }

var errAway = errors.New("redis is away")

func (refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == r.command || slices.Contains(cmd.Args(), any(r.command)) {
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (r refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == r.command {
				cmd.SetErr(errAway)
				return errAway
			}
		}
		return next(ctx, cmds)
	}
}

func TestATaskIsNotGoneBecauseRedisCannotSay(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	id := s.enqueue(purchase)
	if _, err := s.beat().Acquire(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	s.handOut(id)
	servers.Eventually(t, "the task is held", func() bool { return s.states(id)[id] == queue.Active })
	if states, err := queue.NewFinder(nowhere(t), s.namespace).Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
		t.Errorf("without Redis: %v", states)
	}
	for _, command := range []string{"lrange", "hget", "zscore", "get", s.namespace + ":processes"} {
		shaken := newSpaceOn(t, s.settings)
		shaken.rdb.AddHook(refusing{command})
		if states, err := shaken.finder.Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
			t.Errorf("when Redis goes away before %s: %v", command, states)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if states, err := s.finder.Find(ended, purchase, []uuid.UUID{s.schedule()}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v, %v", states, err)
	}
}

// A task in hand whose lease is over, or was never given, is without one.
func TestTasksWithoutALeaseAreCounted(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	key := func(part string) string { return "asynq:{" + queue.Name(s.namespace, "a") + "}:" + part }
	until := func(id string, from time.Duration) {
		t.Helper()
		if err := s.rdb.ZAdd(t.Context(), key("lease"), redis.Z{Score: float64(time.Now().Add(from).Unix()), Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.rdb.LPush(t.Context(), key("active"), "lost", "over", "held").Err(); err != nil {
		t.Fatal(err)
	}
	until("over", -time.Hour)
	until("held", time.Hour)
	unleased, keys, err := queue.CountUnleased(t.Context(), s.rdb, s.namespace, []string{"b", "a"})
	if err != nil || !slices.Equal(unleased, []int64{0, 2}) || keys < 2 {
		t.Errorf("%v of tasks, %d keys, %v", unleased, keys, err)
	}
}
