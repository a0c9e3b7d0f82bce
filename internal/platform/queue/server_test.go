package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

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
	draws := share(draw, into(drawn))
	draws.Concurrency = 1
	s.start(queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(t), purchases, draws))
	t.Cleanup(func() { close(end) })
	for range purchases.Concurrency {
		receive(t, held)
	}
	for range 10 {
		s.comes(s.enqueue(draw), drawn)
	}
	if len(held) != 0 {
		t.Errorf("%d more purchases than their share are in hand", len(held))
	}
}

// A delivery is the task that was enqueued, and says whether one before has failed. What is put off comes
// back and has not failed.
func TestWhatAHandlerReturnsDecidesWhetherItsTaskComesBackAndHasFailed(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	cause := errors.New("the campaign is busy")
	type delivery struct {
		task  queue.Task
		again bool
	}
	results, want := make(map[uuid.UUID]error), make(map[uuid.UUID][]bool)
	for _, row := range []struct {
		result error
		again  []bool // of each delivery
	}{
		{nil, []bool{false}},
		{queue.Snooze(nil), []bool{false}},
		{queue.Snooze(cause), []bool{false, false}},
		{fmt.Errorf("sell: %w", queue.Snooze(cause)), []bool{false, false}},
		{fmt.Errorf("sell: %w", context.Canceled), []bool{false, false}},
		{fmt.Errorf("sell: %w", context.DeadlineExceeded), []bool{false, false}},
		{errors.New("a defect"), []bool{false, true}},
	} {
		id := s.enqueue(purchase)
		results[id], want[id] = row.result, row.again
	}
	foreign, name := "nobody's", queue.Name(s.namespace, purchase)
	if _, err := asynq.NewClientFromRedisClient(s.rdb).Enqueue(asynq.NewTask(purchase, nil), asynq.Queue(name), asynq.TaskID(foreign)); err != nil {
		t.Fatal(err)
	}
	deliveries, log := make(chan delivery, 2*len(results)), &servers.Journal{}
	var seen sync.Map
	server := s.start(queue.NewServer(s.rdb, s.namespace, workerSettings, slog.New(slog.NewTextHandler(log, nil)), share(purchase,
		func(_ context.Context, task queue.Task, again bool) error {
			deliveries <- delivery{task, again}
			if _, before := seen.LoadOrStore(task.ID, nil); before {
				return nil
			}
			return results[task.ID]
		})))
	got := make(map[uuid.UUID][]bool)
	for range 12 {
		d := receive(t, deliveries)
		if got[d.task.ID] = append(got[d.task.ID], d.again); d.task.Kind != purchase || string(d.task.Payload) != "payload of "+d.task.ID.String() {
			t.Errorf("delivered %+v", d.task)
		}
	}
	servers.Eventually(t, "a task that is not ours is set aside", func() bool {
		info, err := s.inspector.GetTaskInfo(name, foreign)
		return err == nil && info.State == asynq.TaskStateArchived
	})
	server.Shutdown()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after %v\ngot  %v\nwant %v", results, got, want)
	}
	for id := range want {
		if state := s.states(id)[id]; state != queue.Missing {
			t.Errorf("a task that is done is %v", state)
		}
	}
	if info, err := s.inspector.GetQueueInfo(name); err != nil || info.FailedTotal != 2 {
		t.Errorf("%+v, %v: two count as failed, the defect and what is not ours", info, err)
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 2 || strings.Count(text, "task not done") != 6 {
		t.Errorf("logged:\n%s", text)
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
