package queue_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// The kinds of the tests.
const (
	draw     = "draw"
	purchase = "purchase"
)

const taskTimeout = 5 * time.Minute

// space is a namespace of its own on Redis, with both ends of its queues and asynq's
// own view of them.
type space struct {
	t         *testing.T
	rdb       *redis.Client
	settings  config.Settings
	namespace string
	client    *queue.Client
	finder    *queue.Finder
	inspector *asynq.Inspector
}

func newSpace(t *testing.T) *space {
	t.Helper()
	return newSpaceOn(t, servers.RedisSettings(t))
}

func newSpaceOn(t *testing.T, settings config.Settings) *space {
	t.Helper()
	rdb, namespace := servers.Redis(t, settings), settings.Redis.Namespace
	return &space{
		t: t, rdb: rdb, settings: settings, namespace: namespace,
		client: queue.NewClient(rdb, namespace), finder: queue.NewFinder(rdb, namespace),
		inspector: asynq.NewInspectorFromRedisClient(rdb),
	}
}

// enqueue puts a new task in the queue of a kind and returns its id.
func (s *space) enqueue(kind string) uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	if err := s.client.Enqueue(s.t.Context(), queue.Task{ID: id, Kind: kind, Payload: []byte("payload of " + id.String())}); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// schedule puts a new purchase task in its queue that asynq delivers much later.
func (s *space) schedule() uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	_, err := asynq.NewClientFromRedisClient(s.rdb).Enqueue(asynq.NewTask(purchase, nil),
		asynq.Queue(queue.Name(s.namespace, purchase)), asynq.TaskID(id.String()), asynq.ProcessIn(time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// info returns what asynq knows of a purchase task.
func (s *space) info(id uuid.UUID) *asynq.TaskInfo {
	s.t.Helper()
	info, err := s.inspector.GetTaskInfo(queue.Name(s.namespace, purchase), id.String())
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

// failures returns how many deliveries of purchase tasks count as failed.
func (s *space) failures() int {
	s.t.Helper()
	info, err := s.inspector.GetQueueInfo(queue.Name(s.namespace, purchase))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.FailedTotal
}

// states finds purchase tasks.
func (s *space) states(ids ...uuid.UUID) map[uuid.UUID]queue.TaskState {
	s.t.Helper()
	states, err := s.finder.Find(s.t.Context(), purchase, ids)
	if err != nil {
		s.t.Fatal(err)
	}
	return states
}

// nowhere returns a client of a Redis that is away.
func nowhere(t *testing.T) *redis.Client {
	t.Helper()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://" + address + "/0"
	client, err := redisx.Open(settings.Redis, "triprize-test", redisx.Once)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// privateRedis starts a Redis that the test may stop and empty; its stack would
// have a Postgres too.
func privateRedis(t *testing.T) (config.Settings, *devstack.Child) {
	t.Helper()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(address)
	dir := t.TempDir()
	server := &devstack.Child{Name: "redis", Command: func() *exec.Cmd {
		return exec.Command("redis-server", "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	}}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://" + address + "/0"
	rdb := servers.Redis(t, settings)
	servers.Eventually(t, "Redis answers", func() bool { return rdb.Ping(t.Context()).Err() == nil })
	return settings, server
}

func TestEnqueuingAnIDTwiceIsOneTask(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	task := queue.Task{ID: uuid.New(), Kind: purchase, Payload: []byte("first")}
	for range 2 {
		if err := s.client.Enqueue(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		task.Payload = []byte("second")
	}
	info, err := s.inspector.GetQueueInfo(queue.Name(s.namespace, purchase))
	if err != nil || info.Size != 1 || info.Pending != 1 {
		t.Fatalf("the queue: %+v, %v", info, err)
	}
	if got := string(s.info(task.ID).Payload); got != "first" {
		t.Errorf("the payload is that of the %s", got)
	}
}

func TestATaskIsEnqueuedWithItsTimeoutAndIsNotGivenUpSoon(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	id := s.enqueue(purchase)
	info := s.info(id)
	if info.Timeout != taskTimeout || info.MaxRetry < 100 || info.Type != purchase || string(info.Payload) != "payload of "+id.String() {
		t.Errorf("asynq has %+v", info)
	}
}

func TestATaskThatIsNotEnqueuedIsAnError(t *testing.T) {
	t.Parallel()
	client := queue.NewClient(nowhere(t), "ns")
	if err := client.Enqueue(t.Context(), queue.Task{ID: uuid.New(), Kind: purchase}); err == nil {
		t.Error("enqueued in a Redis that is away")
	}
	s := newSpace(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.client.Enqueue(ended, queue.Task{ID: uuid.New(), Kind: purchase}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// asynq's own client announces a queue once; without it the inspector, and so
// Find, would call every task of a client that lives on Gone.
func TestAfterAFlushAClientMakesItsQueueVisibleAgain(t *testing.T) {
	t.Parallel()
	settings, _ := privateRedis(t)
	s := newSpaceOn(t, settings)
	visible := func() bool {
		queues, err := s.inspector.Queues()
		return err == nil && len(queues) == 1 && queues[0] == queue.Name(s.namespace, purchase)
	}
	s.enqueue(purchase)
	if !visible() {
		t.Fatal("a queue that was used is not visible")
	}
	if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.client.Age()
	last := s.enqueue(purchase)
	if !visible() {
		t.Error("after the flush the queue is not visible")
	}
	if state := s.states(last)[last]; state != queue.Pending {
		t.Errorf("a task enqueued then is %v", state)
	}
}
