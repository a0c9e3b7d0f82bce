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
)

// handOut lets asynq hand purchase tasks to a server whose handler holds them
// until the test ends, and returns when it has all of them.
func (o *office) handOut(ids ...uuid.UUID) {
	o.t.Helper()
	handed, end := make(chan uuid.UUID, len(ids)), make(chan struct{})
	o.serve(func(_ context.Context, t queue.Task, _ bool) error {
		handed <- t.ID
		<-end
		return nil
	})
	o.t.Cleanup(func() { close(end) })
	for range ids {
		if id := receive(o.t, handed); !slices.Contains(ids, id) {
			o.t.Fatalf("%s was handed out", id)
		}
	}
}

func TestATaskThatWillBeDeliveredIsWaiting(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	retried := o.enqueue(purchase)
	server := o.serve(func(context.Context, queue.Task, bool) error { return errors.New("not done") })
	eventually(t, "asynq waits before it tries again", func() bool { return o.info(retried).State == asynq.TaskStateRetry })
	server.Shutdown()
	for id, state := range map[uuid.UUID]asynq.TaskState{
		retried: asynq.TaskStateRetry, o.enqueue(purchase): asynq.TaskStatePending, o.schedule(): asynq.TaskStateScheduled,
	} {
		if s := o.info(id).State; s != state {
			t.Fatalf("asynq says %v, want %v: the test does not test", s, state)
		}
		if state := o.states(id)[id]; state != queue.Pending {
			t.Errorf("a task that is %v is %v", state, state)
		}
	}
}

func TestATaskThatNobodyWillDeliverIsGoneOrAbandoned(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	unknown := uuid.New()
	if state, ok := o.states(unknown)[unknown]; state != queue.Missing || !ok {
		t.Errorf("in a queue that does not exist it is %v, %v", state, ok)
	}
	archived := o.enqueue(purchase)
	if err := o.inspector.ArchiveTask(queue.Name(o.namespace, purchase), archived.String()); err != nil {
		t.Fatal(err)
	}
	states := o.states(unknown, archived)
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
	o := newOffice(t)
	live := o.beat(10*time.Millisecond, time.Minute)
	stopped := o.beat(time.Hour, 300*time.Millisecond) // beats once
	unheard := queue.NewHeartbeat(o.rdb, o.namespace, "never heard of", config.Worker{})
	var active []uuid.UUID
	want := make(map[uuid.UUID]queue.TaskState)
	note := func(id uuid.UUID, worker *queue.Heartbeat, state queue.TaskState) {
		if worker != nil {
			if err := worker.Started(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		want[id] = state
	}
	for _, c := range []struct {
		worker *queue.Heartbeat
		state  queue.TaskState
	}{{stopped, queue.Orphaned}, {live, queue.Active}, {nil, queue.Orphaned}, {unheard, queue.Orphaned}, {live, queue.Active}} {
		id := o.enqueue(purchase)
		active = append(active, id)
		note(id, c.worker, c.state)
	}
	note(o.schedule(), stopped, queue.Pending) // held once, and in the queue again
	o.handOut(active...)
	ids := append(slices.Collect(maps.Keys(want)), uuid.New())
	want[ids[len(ids)-1]] = queue.Missing
	eventually(t, "the worker that does not beat is dead and the other alive", func() bool {
		states := o.states(active[0], active[1])
		return states[active[0]] == queue.Orphaned && states[active[1]] == queue.Active
	})
	got := o.states(ids...)
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
	o := newOffice(t)
	dropped, forgotten, kept := o.enqueue(purchase), o.enqueue(purchase), o.enqueue(purchase)
	o.handOut(dropped, forgotten, kept)
	p := o.beat(10*time.Millisecond, time.Minute)
	for _, id := range []uuid.UUID{dropped, forgotten, kept} {
		if err := p.Started(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the task is held", func() bool { return o.states(id)[id] == queue.Active })
	}
	if err := p.Finished(t.Context(), dropped); err != nil {
		t.Fatal(err)
	}
	if err := o.finder.Forget(t.Context(), []uuid.UUID{forgotten}); err != nil {
		t.Fatal(err)
	}
	if err := o.finder.Forget(t.Context(), nil); err != nil {
		t.Errorf("forgetting nothing: %v", err)
	}
	states := o.states(dropped, forgotten, kept)
	if states[dropped] != queue.Orphaned || states[forgotten] != queue.Orphaned || states[kept] != queue.Active {
		t.Errorf("dropped %v, forgotten %v, kept %v", states[dropped], states[forgotten], states[kept])
	}
}

// refusing fails the commands of a name, as a Redis does that goes away just then.
type refusing struct{ command string }

var errAway = errors.New("redis is away")

func (refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == r.command {
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
	o := newOffice(t)
	id := o.enqueue(purchase)
	if err := o.beat(10*time.Millisecond, time.Minute).Started(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	o.handOut(id)
	eventually(t, "the task is held", func() bool { return o.states(id)[id] == queue.Active })
	if states, err := queue.NewFinder(nowhere(t), o.namespace).Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
		t.Errorf("without Redis: %v", states)
	}
	for _, command := range []string{"sismember", "evalsha", "hmget", "exists"} {
		shaken := newOfficeOn(t, o.settings)
		shaken.rdb.AddHook(refusing{command})
		if states, err := shaken.finder.Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
			t.Errorf("when Redis goes away before %s: %v", command, states)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if states, err := o.finder.Find(ended, purchase, []uuid.UUID{o.schedule()}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v, %v", states, err)
	}
}
