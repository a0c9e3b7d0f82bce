package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

func TestATaskIsEnqueuedOnceWithItsTimeoutAndIsNotGivenUpSoon(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	task := queue.Task{ID: uuid.New(), Kind: purchase, Payload: []byte("first")}
	for range 2 {
		servers.NoError(t, s.client.Enqueue(t.Context(), task))
		task.Payload = []byte("second")
	}
	tasks, err := s.inspector.GetQueueInfo(queue.Name(s.namespace, purchase))
	if err != nil || tasks.Size != 1 || tasks.Pending != 1 {
		t.Fatalf("the queue: %+v, %v", tasks, err)
	}
	if info := s.info(task.ID); info.Timeout != 5*time.Minute || info.MaxRetry < 100 || info.Type != purchase || string(info.Payload) != "first" {
		t.Errorf("asynq has %+v", info)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.client.Enqueue(ended, queue.Task{ID: uuid.New(), Kind: purchase}); err == nil {
		t.Error("enqueued with a context that has ended")
	}
}

// asynq's client announces a queue once, and a queue that is not announced is missing in its tools.
func TestAfterAFlushAPollMakesQueuesVisibleAgain(t *testing.T) {
	t.Parallel()
	s, _ := ownSpace(t)
	server := queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(t), share(purchase, nil))
	t.Cleanup(server.Shutdown)
	s.enqueue(purchase)
	servers.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	s.enqueue(purchase)
	server.Poll(t.Context())
	if queues, err := s.inspector.Queues(); err != nil || !slices.Equal(queues, []string{queue.Name(s.namespace, purchase)}) {
		t.Errorf("visible are %v, %v", queues, err)
	}
}

func TestAServerStartedWithoutRedisDeliversOnceItIsBack(t *testing.T) {
	t.Parallel()
	s, server := ownSpace(t)
	server.Kill()
	if err := s.client.Enqueue(t.Context(), queue.Task{ID: uuid.New(), Kind: purchase}); err == nil {
		t.Error("enqueued in a Redis that is away")
	}
	delivered := make(chan uuid.UUID, 1)
	s.serve(into(delivered))
	servers.NoError(t, server.RestartAfter(t.Context(), 0))
	servers.Eventually(t, "Redis is back", func() bool { return s.rdb.Ping(t.Context()).Err() == nil })
	s.comes(s.enqueue(purchase), delivered)
}
