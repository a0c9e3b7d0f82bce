package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

var workerSettings = config.Worker{ShutdownTimeout: servers.Patience}

// share returns a share that no test uses up.
func share(kind string, handle queue.Handler) queue.Consumer {
	return queue.Consumer{Kind: kind, Concurrency: 10, Handle: handle}
}

// serve starts a server of purchase tasks and shuts it down when the test ends.
func (s *space) serve(handler queue.Handler) *queue.Server {
	s.t.Helper()
	server := queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(s.t), share(purchase, handler))
	return s.start(server)
}

func (s *space) start(server *queue.Server) *queue.Server {
	s.t.Helper()
	if err := server.Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
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

// silent returns the URL of a Redis that takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	return "redis://" + listener.Addr().String() + "/0"
}

// delivery is one call of a handler.
type delivery struct {
	queue.Task
	again bool
}

// However much of one kind there is to do, and though none of it gets done.
func TestABacklogOfAKindTakesNoSlotOfAnother(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	for range 20 {
		s.enqueue(purchase)
	}
	held, end := make(chan struct{}, 20), make(chan struct{})
	drawn := make(chan uuid.UUID, 20)
	purchases := share(purchase, func(context.Context, queue.Task, bool) error {
		held <- struct{}{}
		<-end
		return nil
	})
	purchases.Concurrency = 2
	draws := share(draw, func(_ context.Context, t queue.Task, _ bool) error {
		drawn <- t.ID
		return nil
	})
	draws.Concurrency = 1
	s.start(queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(t), purchases, draws))
	t.Cleanup(func() { close(end) })
	for range purchases.Concurrency {
		receive(t, held)
	}
	for range 10 {
		id := s.enqueue(draw)
		if got := receive(t, drawn); got != id {
			t.Errorf("%s was delivered", got)
		}
	}
	if len(held) != 0 {
		t.Errorf("%d more purchases than their share are in hand", len(held))
	}
}

func TestADeliveryIsTheTaskThatWasEnqueued(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	id := s.enqueue(purchase)
	deliveries := make(chan delivery, 1)
	s.serve(func(_ context.Context, task queue.Task, again bool) error {
		deliveries <- delivery{task, again}
		return nil
	})
	d := receive(t, deliveries)
	if d.ID != id || d.Kind != purchase || string(d.Payload) != "payload of "+id.String() || d.again {
		t.Errorf("delivered %+v", d)
	}
	servers.Eventually(t, "a task that is done is gone", func() bool { return s.states(id)[id] == queue.Missing })
}

func TestATaskThatIsPutOffComesBackAndDoesNotCountAsFailed(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	cause := errors.New("the campaign is busy")
	faults := map[uuid.UUID]error{
		s.enqueue(purchase): queue.Snooze(cause),
		s.enqueue(purchase): fmt.Errorf("sell: %w", queue.Snooze(cause)),
		s.enqueue(purchase): fmt.Errorf("sell: %w", context.Canceled),
		s.enqueue(purchase): fmt.Errorf("sell: %w", context.DeadlineExceeded),
	}
	deliveries := make(chan delivery, 2*len(faults))
	var mu sync.Mutex
	seen := make(map[uuid.UUID]bool)
	var logs bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logs, nil))
	server := s.start(queue.NewServer(s.rdb, s.namespace, workerSettings, logger, share(purchase,
		func(_ context.Context, task queue.Task, again bool) error {
			deliveries <- delivery{task, again}
			mu.Lock()
			defer mu.Unlock()
			if seen[task.ID] {
				return nil
			}
			seen[task.ID] = true
			return faults[task.ID]
		})))
	times := make(map[uuid.UUID]int)
	for range 2 * len(faults) {
		d := receive(t, deliveries)
		if times[d.ID]++; d.again {
			t.Errorf("after %q: delivery %d is said to follow a failure", faults[d.ID], times[d.ID])
		}
	}
	for id, fault := range faults {
		if times[id] != 2 {
			t.Errorf("after %q: %d deliveries", fault, times[id])
		}
	}
	server.Shutdown()
	if n := s.failures(); n != 0 {
		t.Errorf("%d failures", n)
	}
	if text := logs.String(); strings.Contains(text, "level=ERROR") || !strings.Contains(text, "task not done") {
		t.Errorf("logged:\n%s", text)
	}
}

func TestAnyOtherErrorCountsAsAFailureAndTheRedeliverySaysSo(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	id := s.enqueue(purchase)
	deliveries := make(chan delivery, 1)
	s.serve(func(_ context.Context, task queue.Task, again bool) error {
		deliveries <- delivery{task, again}
		if again {
			return nil
		}
		return errors.New("a defect")
	})
	if first := receive(t, deliveries); first.ID != id || first.again {
		t.Errorf("first %+v", first)
	}
	if second := receive(t, deliveries); second.ID != id || !second.again {
		t.Errorf("second %+v", second)
	}
	if n := s.failures(); n != 1 {
		t.Errorf("%d failures", n)
	}
}

func TestLaterKeepsItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	if err := queue.Snooze(cause); !errors.Is(err, cause) || !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("got %v", err)
	}
	if err := queue.Snooze(nil); err != nil {
		t.Errorf("nothing is later: %v", err)
	}
}

func TestATaskThatIsNotOursIsSetAside(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	name := queue.Name(s.namespace, purchase)
	client := asynq.NewClientFromRedisClient(s.rdb)
	if _, err := client.Enqueue(asynq.NewTask(purchase, nil), asynq.Queue(name), asynq.TaskID("nobody's")); err != nil {
		t.Fatal(err)
	}
	s.serve(func(_ context.Context, task queue.Task, _ bool) error {
		t.Errorf("the handler was given %+v", task)
		return nil
	})
	servers.Eventually(t, "it is archived", func() bool {
		info, err := s.inspector.GetTaskInfo(name, "nobody's")
		return err == nil && info.State == asynq.TaskStateArchived
	})
}
