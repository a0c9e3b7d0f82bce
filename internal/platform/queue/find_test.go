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
		if place := o.places(id)[id]; place != queue.Waiting {
			t.Errorf("a task that is %v is %v", state, place)
		}
	}
}

func TestATaskThatNobodyWillDeliverIsGoneOrAbandoned(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	unknown := uuid.New()
	if place, ok := o.places(unknown)[unknown]; place != queue.Gone || !ok {
		t.Errorf("in a queue that does not exist it is %v, %v", place, ok)
	}
	archived := o.enqueue(purchase)
	if err := o.inspector.ArchiveTask(queue.Name(o.namespace, purchase), archived.String()); err != nil {
		t.Fatal(err)
	}
	places := o.places(unknown, archived)
	if place, ok := places[unknown]; place != queue.Gone || !ok {
		t.Errorf("an unknown task is %v, %v", place, ok)
	}
	if place, ok := places[archived]; place != queue.Abandoned || !ok { // it was delivered
		t.Errorf("an archived task is %v, %v", place, ok)
	}
}

// What asynq has handed out is in good hands only with a worker that is heard.
func TestTasksHandedOutAreToldApartByTheirWorkers(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	live := o.present(10*time.Millisecond, time.Minute)
	stopped := o.present(time.Hour, 300*time.Millisecond) // beats once
	unheard := queue.NewPresence(o.rdb, o.namespace, "never heard of", time.Second, time.Minute)
	var active []uuid.UUID
	want := make(map[uuid.UUID]queue.Place)
	note := func(id uuid.UUID, worker *queue.Presence, place queue.Place) {
		if worker != nil {
			if err := worker.Hold(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		want[id] = place
	}
	for _, c := range []struct {
		worker *queue.Presence
		place  queue.Place
	}{{stopped, queue.Abandoned}, {live, queue.Held}, {nil, queue.Abandoned}, {unheard, queue.Abandoned}, {live, queue.Held}} {
		id := o.enqueue(purchase)
		active = append(active, id)
		note(id, c.worker, c.place)
	}
	note(o.schedule(), stopped, queue.Waiting) // held once, and in the queue again
	o.handOut(active...)
	ids := append(slices.Collect(maps.Keys(want)), uuid.New())
	want[ids[len(ids)-1]] = queue.Gone
	eventually(t, "the worker that does not beat is dead and the other alive", func() bool {
		places := o.places(active[0], active[1])
		return places[active[0]] == queue.Abandoned && places[active[1]] == queue.Held
	})
	got := o.places(ids...)
	for i, id := range active {
		if got[id] != want[id] {
			t.Errorf("active task %d is %v, want %v", i, got[id], want[id])
		}
	}
	for id, place := range want {
		if found, ok := got[id]; found != place || !ok {
			t.Errorf("got %v, %v, want %v", found, ok, place)
		}
	}
}

func TestATaskIsNoLongerHeldOnceItIsDroppedOrForgotten(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	dropped, forgotten, kept := o.enqueue(purchase), o.enqueue(purchase), o.enqueue(purchase)
	o.handOut(dropped, forgotten, kept)
	p := o.present(10*time.Millisecond, time.Minute)
	for _, id := range []uuid.UUID{dropped, forgotten, kept} {
		if err := p.Hold(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the task is held", func() bool { return o.places(id)[id] == queue.Held })
	}
	if err := p.Drop(t.Context(), dropped); err != nil {
		t.Fatal(err)
	}
	if err := o.finder.Forget(t.Context(), []uuid.UUID{forgotten}); err != nil {
		t.Fatal(err)
	}
	if err := o.finder.Forget(t.Context(), nil); err != nil {
		t.Errorf("forgetting nothing: %v", err)
	}
	places := o.places(dropped, forgotten, kept)
	if places[dropped] != queue.Abandoned || places[forgotten] != queue.Abandoned || places[kept] != queue.Held {
		t.Errorf("dropped %v, forgotten %v, kept %v", places[dropped], places[forgotten], places[kept])
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
	if err := o.present(10*time.Millisecond, time.Minute).Hold(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	o.handOut(id)
	eventually(t, "the task is held", func() bool { return o.places(id)[id] == queue.Held })
	if places, err := queue.NewFinder(nowhere(t), o.namespace).Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
		t.Errorf("without Redis: %v", places)
	}
	for _, command := range []string{"sismember", "evalsha", "hmget", "exists"} {
		shaken := newOfficeOn(t, o.settings)
		shaken.rdb.AddHook(refusing{command})
		if places, err := shaken.finder.Find(t.Context(), purchase, []uuid.UUID{id}); err == nil {
			t.Errorf("when Redis goes away before %s: %v", command, places)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if places, err := o.finder.Find(ended, purchase, []uuid.UUID{o.schedule()}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v, %v", places, err)
	}
}
