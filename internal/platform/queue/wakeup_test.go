package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// never is longer than any test.
const never = time.Hour

// looks counts the takes and polls of the servers of one client.
type looks struct {
	takes, polls atomic.Int64
	refused      atomic.Bool // whether no task can be taken
	unpolled     atomic.Bool // whether polls fail
}

func (l *looks) see(_ context.Context, cmd redis.Cmder) error {
	keys := fmt.Sprint(cmd.Args()...)
	count, fails := &l.takes, &l.refused
	switch {
	case cmd.Name() != "evalsha" || !strings.Contains(keys, "}:paused"): // the whole script, which Redis has forgotten, is sent in the same look
		return nil
	case strings.Contains(keys, ":wakeup:{"):
		count, fails = &l.polls, &l.unpolled
	}
	if count.Add(1); fails.Load() {
		return errAway
	}
	return nil
}

// timed starts a server of purchase tasks with these times, on a client that may be another than the space's.
func (s *space) timed(rdb redis.UniversalClient, poll, wait time.Duration, handler queue.Handler) *queue.Server {
	s.t.Helper()
	return s.start(queue.NewServer(rdb, s.namespace, workerSettings, servers.Logger(s.t), share(purchase, handler)).Timing(poll, wait))
}

// waiting is timed without looks at intervals. It returns when the server waits.
func (s *space) waiting(rdb redis.UniversalClient, poll time.Duration, handler queue.Handler) *queue.Server {
	s.t.Helper()
	server := s.timed(rdb, poll, never, handler)
	servers.Eventually(s.t, "the server waits", server.Waits)
	return server
}

// counted returns a client whose looks are counted.
func (s *space) counted() (redis.UniversalClient, *looks) {
	rdb, l := servers.Redis(s.t, s.settings), &looks{}
	rdb.AddHook(servers.Before(l.see))
	return rdb, l
}

// The woken worker takes the task, and looks once more before it waits again.
func TestATaskWakesOneOfFiftyWorkers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	delivered := make(chan uuid.UUID, 1)
	for range 50 {
		s.waiting(rdb, never, into(delivered))
	}
	looks.takes.Store(0)
	const tasks = 100
	for range tasks {
		s.comes(s.enqueue(purchase), delivered)
	}
	if n := looks.takes.Load(); n > 3*tasks {
		t.Errorf("fifty workers looked %d times for %d tasks", n, tasks)
	}
}

// Each of these puts a task where workers take it: the first without a poll. What is given back has not failed.
func TestATaskThatIsGivenBackOrWhoseDelayIsOverWakesAWorker(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	settings := workerSettings
	settings.ShutdownTimeout = 100 * time.Millisecond
	held := make(chan uuid.UUID, 1)
	first := s.start(queue.NewServer(s.rdb, s.namespace, settings, servers.Logger(t), share(purchase, func(ctx context.Context, task queue.Task, _ bool) error {
		held <- task.ID
		<-ctx.Done()
		return ctx.Err()
	})).Timing(never, never))
	id := s.enqueue(purchase)
	receive(t, held)
	delivered := make(chan uuid.UUID, 2)
	var before atomic.Bool
	second := s.waiting(s.rdb, never, func(_ context.Context, task queue.Task, again bool) error {
		if again {
			t.Error("it is said to have failed")
		}
		delivered <- task.ID
		if before.Swap(true) {
			return nil
		}
		return queue.Snooze(errAway)
	})
	first.Shutdown()
	s.comes(id, delivered)
	servers.Eventually(t, "it is delivered again", func() bool { second.Poll(t.Context()); return len(delivered) > 0 })
}

func TestATaskWithoutAWakeupAndOneThatAnotherProcessHasDelayedAreDelivered(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	delivered := make(chan uuid.UUID, 1)
	s.waiting(s.rdb, 20*time.Millisecond, into(delivered))
	for _, options := range [][]asynq.Option{nil, {asynq.ProcessIn(time.Second)}} {
		s.comes(s.unrung(purchase, options...), delivered)
	}
}

// The key of the first kind's wakeups is of another type.
func TestPollsRingOnceForEachQueueThatHasTasks(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	server := queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(t), share(purchase, nil), share(draw, nil))
	t.Cleanup(server.Shutdown)
	s.otherType(queue.WakeupKey(s.namespace, purchase))
	s.unrung(purchase)
	s.unrung(draw)
	for range 2 {
		server.Poll(t.Context())
		if n, err := s.rdb.LLen(t.Context(), queue.WakeupKey(s.namespace, draw)).Result(); err != nil || n != 1 {
			t.Errorf("%d wakeups wait, %v", n, err)
		}
	}
}

// Tasks whose records are lost stand before it. The server is the test's own, as asynq's inspector
// describes no queue beside such tasks.
func TestOfServersWithTheSameQueuesOnePolls(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	server := func(kinds ...string) *queue.Server {
		var consumers []queue.Consumer
		for _, kind := range kinds {
			consumers = append(consumers, share(kind, nil))
		}
		made := queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(t), consumers...).Timing(time.Hour, time.Second)
		t.Cleanup(made.Shutdown)
		return made
	}
	wakeups := func(kind string) int64 { return s.rdb.LLen(t.Context(), queue.WakeupKey(s.namespace, kind)).Val() }
	server(purchase).PollNext(t.Context())
	s.unrung(purchase)
	s.unrung(draw)
	server(purchase).PollNext(t.Context())
	if n := wakeups(purchase); n != 0 {
		t.Errorf("%d wakeups by a second poll", n)
	}
	server(purchase, draw).PollNext(t.Context())
	if n := wakeups(draw); n != 1 {
		t.Errorf("%d wakeups of the queue that only the third server has", n)
	}
}

func TestATaskBehindThoseWithoutRecordsIsDelivered(t *testing.T) {
	t.Parallel()
	s, _ := ownSpace(t)
	delivered := make(chan uuid.UUID, 1)
	s.waiting(s.rdb, 20*time.Millisecond, into(delivered))
	for range 500 {
		servers.NoError(t, s.rdb.LPush(t.Context(), s.key("pending"), uuid.NewString()).Err())
	}
	s.comes(s.enqueue(purchase), delivered)
}

// It also notices when another release of asynq no longer goes through the waiter.
func TestAnIdleServerPollsAndTakesNothing(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	delivered := make(chan uuid.UUID, 1)
	s.waiting(rdb, time.Second, into(delivered)) // as by default
	servers.Eventually(t, "the first poll", func() bool { return looks.polls.Load() > 0 })
	takes := looks.takes.Load()
	servers.Eventually(t, "further polls", func() bool { return looks.polls.Load() > 3 })
	if n := looks.takes.Load() - takes; n > 0 {
		t.Errorf("an idle server looked for tasks %d times", n)
	}
	s.comes(s.enqueue(purchase), delivered)
	if looks.takes.Load() == takes {
		t.Error("looks are not counted")
	}
}

// asynq counts a lease from before the wait: it is to ask again before that is over.
func TestAWaitHasAnEnd(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	s.timed(rdb, never, time.Second, nil)
	servers.Eventually(t, "it looks again", func() bool { return looks.takes.Load() > 2 })
}

func TestAPausedQueueIsLeftAloneAndGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	const tasks = 5
	delivered := make(chan uuid.UUID, tasks)
	s.waiting(rdb, 20*time.Millisecond, into(delivered))
	servers.NoError(t, s.inspector.PauseQueue(queue.Name(s.namespace, purchase)))
	takes := looks.takes.Load()
	for range tasks {
		s.enqueue(purchase)
	}
	polls := looks.polls.Load()
	servers.Eventually(t, "polls", func() bool { return looks.polls.Load() > polls+20 })
	if n := looks.takes.Load() - takes; n > 2*tasks {
		t.Errorf("%d looks into a paused queue", n)
	}
	if len(delivered) > 0 {
		t.Error("a task of a paused queue was delivered")
	}
	servers.NoError(t, s.inspector.UnpauseQueue(queue.Name(s.namespace, purchase)))
	for range tasks {
		receive(t, delivered)
	}
}

func TestAPausedServerLeavesTasksAndWakeupsToOthers(t *testing.T) {
	t.Parallel()
	s, _ := ownSpace(t)
	rdb, looks := s.counted()
	looks.unpolled.Store(true) // the first poll may come late, and would ring
	mine, others := make(chan uuid.UUID, 1), make(chan uuid.UUID, 1)
	server := s.waiting(rdb, never, into(mine))
	s.comes(s.enqueue(purchase), mine) // asynq's first enqueue pushes two wakeups, as Redis has no script yet
	servers.Eventually(t, "the server would get the wakeup", func() bool { return strings.Contains(s.rdb.Info(t.Context(), "clients").Val(), "blocked_clients:1") })
	takes, resume := looks.takes.Load(), server.Pause()
	id := s.enqueue(purchase)
	servers.Eventually(t, "the wakeup is passed on", func() bool { return s.rdb.LLen(t.Context(), queue.WakeupKey(s.namespace, purchase)).Val() == 1 })
	other := s.waiting(s.rdb, never, into(others))
	s.comes(id, others)
	other.Shutdown()
	if n := looks.takes.Load() - takes; n > 0 {
		t.Errorf("a paused server looked for tasks %d times", n)
	}
	resume()
	s.comes(s.enqueue(purchase), mine)
	server.Pause()
	server.Shutdown() // does not wait for the end of the pause
}

// asynq's loop has no pause after an error.
func TestErrorsOfRedisAreNotRepeatedWithoutAPause(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*space, *looks){
		"no task can be taken": func(_ *space, l *looks) { l.refused.Store(true) },
		"no wakeup can be pushed": func(s *space, l *looks) {
			l.unpolled.Store(true) // a poll would delete the key
			s.otherType(queue.WakeupKey(s.namespace, purchase))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			rdb, looks := s.counted()
			disturb(s, looks)
			delivered := make(chan uuid.UUID, 1)
			began := time.Now()
			s.timed(rdb, never, never, into(delivered))
			servers.Eventually(t, "three looks", func() bool { return looks.takes.Load() > 2 })
			if n, most := looks.takes.Load(), 2+int64(time.Since(began)/queue.ErrorBackoff); n > most {
				t.Errorf("%d looks instead of %d", n, most)
			}
			looks.refused.Store(false)
			s.comes(s.enqueue(purchase), delivered)
		})
	}
}

func TestShutdownEndsAWaitAndTakesNoTask(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	looks.unpolled.Store(true) // the first poll may come late, and would ring
	server := s.waiting(rdb, never, func(context.Context, queue.Task, bool) error {
		t.Error("a task was delivered")
		return nil
	})
	takes := looks.takes.Load()
	id := s.unrung(purchase)
	down := make(chan struct{})
	go func() {
		defer close(down)
		server.Shutdown()
	}()
	receive(t, down)
	if n := looks.takes.Load() - takes; n > 0 || s.states(id)[id] != queue.Pending {
		t.Errorf("%d looks during the shutdown, the task is %v", n, s.states(id)[id])
	}
}

// As after a firewall has forgotten a connection: Redis sends rings, and nobody hears them.
func TestAWorkerWhoseConnectionIsDeadHearsOfTasksAgain(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, deaf := servers.Redis(t, s.settings), &atomic.Bool{}
	dial := new(net.Dialer).DialContext
	deafened := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &wire{Conn: conn, deaf: deaf}, err
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.Options().Dialer = deafened
	} else {
		options := rdb.(*redis.Client).Options()
		dial, options.Dialer = options.Dialer, deafened
	}
	delivered := make(chan uuid.UUID, 1)
	server := s.timed(rdb, 20*time.Millisecond, time.Second, into(delivered))
	servers.Eventually(t, "the server waits", server.Waits)
	deaf.Store(true)
	id := s.enqueue(purchase)
	servers.Eventually(t, "the wakeup is lost", func() bool { return !deaf.Load() })
	s.comes(id, delivered)
}

// wire is a connection that never hears again after it has waited for a wakeup and lost it,
// when it is deaf.
type wire struct {
	net.Conn
	deaf *atomic.Bool
	bell atomic.Bool
}

func (w *wire) Write(b []byte) (int, error) {
	w.bell.Store(bytes.Contains(b, []byte("blpop")))
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.bell.Load() && err == nil && w.deaf.CompareAndSwap(true, false) {
		for err == nil {
			_, err = w.Conn.Read(b)
		}
		return 0, errors.Join(errors.New("the connection is cut"), err)
	}
	return n, err
}
