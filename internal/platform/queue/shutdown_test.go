package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
)

func TestShutdownGivesBackATaskThatIsNotDoneInTime(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	id := o.enqueue(purchase)
	held := make(chan context.Context, 1)
	settings := workerSettings
	settings.ShutdownTimeout = 100 * time.Millisecond
	server := o.start(queue.NewServer(o.rdb, o.namespace, settings, fixture.Logger(t), []string{purchase},
		map[string]queue.Handler{purchase: func(ctx context.Context, _ queue.Task, _ bool) error {
			held <- ctx
			<-ctx.Done()
			return ctx.Err()
		}}))
	ctx := receive(t, held)
	server.Shutdown()
	if ctx.Err() == nil {
		t.Error("the handler was not told to stop")
	}
	if state := o.info(id).State; state != asynq.TaskStatePending {
		t.Fatalf("the task is %v", state)
	}
	deliveries := make(chan delivery, 1)
	o.serve(func(_ context.Context, task queue.Task, again bool) error {
		deliveries <- delivery{task, again}
		return nil
	})
	if d := receive(t, deliveries); d.ID != id || d.again {
		t.Errorf("the next worker got %+v", d)
	}
}

func TestShutdownWaitsForATaskThatIsNearlyDone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	id := o.enqueue(purchase)
	held, finish := make(chan struct{}), make(chan struct{})
	settings := workerSettings
	settings.ShutdownTimeout = time.Minute
	server := o.start(queue.NewServer(o.rdb, o.namespace, settings, fixture.Logger(t), []string{purchase},
		map[string]queue.Handler{purchase: func(context.Context, queue.Task, bool) error {
			close(held)
			<-finish
			return nil
		}}))
	receive(t, held)
	down := make(chan struct{})
	go func() {
		defer close(down)
		server.Shutdown()
	}()
	select {
	case <-down:
		t.Error("it did not wait")
	case <-time.After(100 * time.Millisecond): // long enough for one that does not
	}
	close(finish)
	receive(t, down)
	if state := o.states(id)[id]; state != queue.Missing {
		t.Errorf("the task that was finished is %v", state)
	}
}

func TestAServerStartedWithoutRedisDeliversOnceItIsBack(t *testing.T) {
	t.Parallel()
	settings, redisServer := privateRedis(t)
	o := newOfficeOn(t, settings)
	redisServer.Kill()
	deliveries := make(chan delivery, 1)
	o.serve(func(_ context.Context, task queue.Task, again bool) error {
		deliveries <- delivery{task, again}
		return nil
	})
	if err := redisServer.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Redis is back", func() bool { return o.rdb.Ping(t.Context()).Err() == nil })
	id := o.enqueue(purchase)
	if d := receive(t, deliveries); d.ID != id {
		t.Errorf("delivered %+v", d)
	}
}
