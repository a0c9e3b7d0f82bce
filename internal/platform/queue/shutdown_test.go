package queue_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

func TestShutdownGivesBackATaskThatIsNotDoneInTime(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	id := s.enqueue(purchase)
	held := make(chan context.Context, 1)
	settings := workerSettings
	settings.ShutdownTimeout = 100 * time.Millisecond
	server := s.start(queue.NewServer(s.rdb, s.namespace, settings, servers.Logger(t), share(purchase,
		func(ctx context.Context, _ queue.Task, _ bool) error {
			held <- ctx
			<-ctx.Done()
			return ctx.Err()
		})))
	ctx := receive(t, held)
	server.Shutdown()
	if ctx.Err() == nil {
		t.Error("the handler was not told to stop")
	}
	if state := s.info(id).State; state != asynq.TaskStatePending {
		t.Fatalf("the task is %v", state)
	}
	deliveries := make(chan delivery, 1)
	s.serve(func(_ context.Context, task queue.Task, again bool) error {
		deliveries <- delivery{task, again}
		return nil
	})
	if d := receive(t, deliveries); d.ID != id || d.again {
		t.Errorf("the next worker got %+v", d)
	}
}

func TestShutdownWaitsForTheTasksOfEveryKind(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	tasks := map[string]uuid.UUID{purchase: s.enqueue(purchase), draw: s.enqueue(draw)}
	held, finish := make(chan struct{}, 2), make(chan struct{})
	handle := func(context.Context, queue.Task, bool) error {
		held <- struct{}{}
		<-finish
		return nil
	}
	log := &servers.Journal{}
	server := s.start(queue.NewServer(s.rdb, s.namespace, workerSettings, slog.New(slog.NewTextHandler(log, nil)), share(purchase, handle), share(draw, handle)))
	receive(t, held)
	receive(t, held)
	down := make(chan struct{})
	go func() {
		defer close(down)
		server.Shutdown()
	}()
	// At the same time: one after the other, they could take twice the timeout.
	servers.Eventually(t, "both wait", func() bool { return strings.Count(log.String(), "Waiting for all workers to finish") == 2 })
	close(finish)
	receive(t, down)
	for kind, id := range tasks {
		states, err := s.finder.Find(t.Context(), kind, []uuid.UUID{id})
		if err != nil || states[id] != queue.Missing {
			t.Errorf("the %s task that was finished is %v, %v", kind, states[id], err)
		}
	}
}

func TestAServerStartedWithoutRedisDeliversOnceItIsBack(t *testing.T) {
	t.Parallel()
	settings, redisServer := privateRedis(t)
	s := newSpaceOn(t, settings)
	redisServer.Kill()
	deliveries := make(chan delivery, 1)
	s.serve(func(_ context.Context, task queue.Task, again bool) error {
		deliveries <- delivery{task, again}
		return nil
	})
	if err := redisServer.Start(); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "Redis is back", func() bool { return s.rdb.Ping(t.Context()).Err() == nil })
	id := s.enqueue(purchase)
	if d := receive(t, deliveries); d.ID != id {
		t.Errorf("delivered %+v", d)
	}
}
