package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// The kinds of the tests.
const (
	draw     = "draw"
	purchase = "purchase"
)

// space is a namespace of its own on Redis, with both ends of its queues and asynq's
// own view of them.
type space struct {
	t         *testing.T
	rdb       redis.UniversalClient
	settings  config.Settings
	namespace string
	client    *queue.Client
	finder    *queue.Finder
	inspector *asynq.Inspector
}

func newSpace(t *testing.T) *space {
	t.Helper()
	return newSpaceOn(t, servers.Patient(servers.RedisSettings(t)))
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

// ownSpace is a space on a Redis that the test may stop and empty.
func ownSpace(t *testing.T) (*space, *devstack.Redis) {
	t.Helper()
	server := servers.OwnRedis(t)
	settings := servers.Patient(servers.RedisSettings(t))
	settings.Redis.URL = server.URL()
	return newSpaceOn(t, settings), server
}

// enqueue puts a new task in the queue of a kind and returns its id.
func (s *space) enqueue(kind string) uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	servers.NoError(s.t, s.client.Enqueue(s.t.Context(), queue.Task{ID: id, Kind: kind, Payload: []byte("payload of " + id.String())}))
	return id
}

// unrung enqueues a task as asynqmon does, or as when a wakeup is lost.
func (s *space) unrung(kind string, options ...asynq.Option) (id uuid.UUID) {
	s.t.Helper()
	id = uuid.New()
	options = append(options, asynq.Queue(queue.Name(s.namespace, kind)), asynq.TaskID(id.String()))
	if _, err := asynq.NewClientFromRedisClient(s.rdb).Enqueue(asynq.NewTask(kind, nil), options...); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// key returns asynq's key for a part of the queue of purchases.
func (s *space) key(part string) string {
	return "asynq:{" + queue.Name(s.namespace, purchase) + "}:" + part
}

// otherType makes a key one of another type than it should be.
func (s *space) otherType(key string) {
	s.t.Helper()
	servers.NoError(s.t, s.rdb.Set(s.t.Context(), key, "of another type", 0).Err())
}

// info returns what asynq knows of a purchase task.
func (s *space) info(id uuid.UUID) *asynq.TaskInfo {
	s.t.Helper()
	info, err := s.inspector.GetTaskInfo(queue.Name(s.namespace, purchase), id.String())
	servers.NoError(s.t, err)
	return info
}

// states finds purchase tasks.
func (s *space) states(ids ...uuid.UUID) map[uuid.UUID]queue.TaskState {
	s.t.Helper()
	states, err := s.finder.Find(s.t.Context(), purchase, ids)
	servers.NoError(s.t, err)
	return states
}

// workerSettings wait for tasks for as long as a test does.
var workerSettings = config.Worker{ShutdownTimeout: servers.Patience}

// share returns a share that no test uses up.
func share(kind string, handle queue.Handler) queue.Consumer {
	return queue.Consumer{Kind: kind, Concurrency: 10, Handle: handle}
}

// serve starts a server of purchase tasks and shuts it down when the test ends.
func (s *space) serve(handler queue.Handler) *queue.Server {
	s.t.Helper()
	return s.start(queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(s.t), share(purchase, handler)))
}

func (s *space) start(server *queue.Server) *queue.Server {
	s.t.Helper()
	servers.NoError(s.t, server.Start(context.Background()))
	s.t.Cleanup(server.Shutdown)
	return server
}

// receive takes from a channel, or fails the test.
func receive[T any](t *testing.T, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(servers.Patience):
		t.Fatal("nothing came")
	}
	return value
}

// comes takes a task from a channel, and fails the test when it is another one.
func (s *space) comes(id uuid.UUID, tasks <-chan uuid.UUID) {
	s.t.Helper()
	if got := receive(s.t, tasks); got != id {
		s.t.Errorf("%s was delivered instead of %s", got, id)
	}
}

// into returns a handler that passes on the ids of tasks.
func into(ids chan<- uuid.UUID) queue.Handler {
	return func(_ context.Context, task queue.Task, _ bool) error {
		ids <- task.ID
		return nil
	}
}

var errAway = errors.New("redis is away")
