package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// has says in Redis that a worker which lives for ttl has a task.
func has(t *testing.T, w *Worker, worker string, ttl time.Duration, task uuid.UUID) {
	t.Helper()
	beat := queue.NewHeartbeat(w.rdb, w.namespace, worker, config.Worker{HeartbeatInterval: time.Hour, HeartbeatTTL: ttl})
	if mine, err := beat.Acquire(t.Context(), task); err != nil || !mine {
		t.Fatal(mine, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { beat.Run(ctx, servers.Logger(t)) })
	t.Cleanup(func() { stop(); beating.Wait() })
	servers.Eventually(t, "the worker is known", func() bool {
		present, err := queue.ReadProcesses(t.Context(), w.rdb, w.namespace)
		of := present[queue.RoleWorker]
		return err == nil && slices.Contains(append(of.Alive, of.Stale...), worker)
	})
}

// A task may be delivered to two workers. The second one leaves it to the first while that is alive, and
// has it at once when it is not.
func TestATaskIsOneWorkersUntilThatIsDead(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	held, orphaned := order(t, w, id, "a"), order(t, w, id, "b")
	has(t, w, "alive", time.Hour, held.ID)
	has(t, w, "dead", time.Millisecond, orphaned.ID)
	if err := deliver(t, w, w.purchases.jobs, held, false); !errors.Is(err, errTaken) || !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, held.Jobs[0].ID, job.Queued, 0)
	servers.Eventually(t, "the task of the dead one is done", func() bool { return deliver(t, w, w.purchases.jobs, orphaned, false) == nil })
	expect(t, w.db, orphaned.Jobs[0].ID, job.Succeeded, 1)
	keys, err := w.rdb.Keys(t.Context(), w.namespace+":active-task:*").Result()
	if want := w.namespace + ":active-task:" + held.ID.String(); err != nil || !slices.Equal(keys, []string{want}) { // one for each task that is under way
		t.Errorf("keys %v, %v", keys, err)
	}
	stop(w)
	if n := messages(t, w); n != 1 {
		t.Errorf("%d messages while a task is with another worker", n)
	}
}

func TestAFailedDeliveryLeavesTheMessageInTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	message := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a")
	broken := errors.New("broken")
	for _, c := range []struct {
		redelivered bool
		number      int
		again       bool
	}{{false, 1, false}, {true, 1, true}, {false, 2, true}, {true, 3, true}} {
		message.Delivery = c.number
		err := deliver(t, w, func(_ context.Context, jobs []job.Ref, again bool) error {
			if again != c.again || !slices.Equal(jobs, message.Jobs) {
				t.Errorf("redelivered %v, message number %d: again is %v, the jobs %v", c.redelivered, c.number, again, jobs)
			}
			return broken
		}, message, c.redelivered)
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	for _, payload := range []string{"{", "{}", "null", `{"delivery":1,"campaigns":{}}`} { // they are dropped
		if err := w.handle(w.purchases.jobs)(t.Context(), queue.Task{ID: message.ID, Kind: "purchase", Payload: []byte(payload)}, false); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	stop(w)
	if n := messages(t, w); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestWithoutRedisTheJobsAreDoneAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *config.Settings) { s.Redis.URL = "redis://127.0.0.1:1/0" })
	message := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a", "b")
	if err := deliver(t, w, w.purchases.jobs, message, false); err != nil {
		t.Fatal(err)
	}
	for _, ref := range message.Jobs {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	stop(w)
	if n := messages(t, w); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}
