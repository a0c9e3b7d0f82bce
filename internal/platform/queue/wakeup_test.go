package queue_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
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
	script := strings.HasPrefix(cmd.Name(), "eval")
	has := func(part, suffix string) bool {
		return script && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			text, _ := arg.(string)
			return strings.Contains(text, part) && strings.HasSuffix(text, suffix)
		})
	}
	count, fails := &l.takes, &l.refused
	switch {
	case has(":wakeup:{", "-"+purchase+"}"):
		count, fails = &l.polls, &l.unpolled
	case !has("", "}:paused"):
		return nil
	}
	if count.Add(1); fails.Load() {
		return errAway
	}
	return nil
}

// quiet starts a server of purchase tasks, without polls and looks at intervals, and waits
// until it waits.
func (s *space) quiet(rdb redis.UniversalClient, handler queue.Handler) *queue.Server {
	s.t.Helper()
	return s.timed(rdb, never, handler)
}

// timed is quiet with polls.
func (s *space) timed(rdb redis.UniversalClient, poll time.Duration, handler queue.Handler) *queue.Server {
	s.t.Helper()
	server := s.start(queue.NewServer(rdb, s.namespace, workerSettings, servers.Logger(s.t), share(purchase, handler)).Timing(poll, never))
	servers.Eventually(s.t, "the server waits", server.Waits)
	return server
}

// counted returns a client whose looks are counted.
func (s *space) counted() (redis.UniversalClient, *looks) {
	rdb, l := servers.Redis(s.t, s.settings), &looks{}
	rdb.AddHook(hook(l.see))
	return rdb, l
}

// The woken worker takes the task, and looks once more before it waits again.
func TestATaskWakesOneOfFiftyWorkers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	delivered := make(chan uuid.UUID, 1)
	for range 50 {
		s.quiet(rdb, into(delivered))
	}
	looks.takes.Store(0)
	const tasks = 100
	for range tasks {
		if id := s.enqueue(purchase); receive(t, delivered) != id {
			t.Error("another task was delivered")
		}
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
	second := s.quiet(s.rdb, func(_ context.Context, task queue.Task, again bool) error {
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
	if receive(t, delivered) != id {
		t.Error("another task was delivered")
	}
	servers.Eventually(t, "it is delivered again", func() bool { second.Poll(t.Context()); return len(delivered) > 0 })
}

func TestATaskWithoutAWakeupAndOneThatAnotherProcessHasDelayedAreDelivered(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	delivered := make(chan uuid.UUID, 1)
	s.timed(s.rdb, 20*time.Millisecond, into(delivered))
	for _, options := range [][]asynq.Option{nil, {asynq.ProcessIn(time.Second)}} {
		if id := s.unrung(purchase, options...); receive(t, delivered) != id {
			t.Error("another task was delivered")
		}
	}
}

// The key of the first kind's wakeups is of another type.
func TestPollsRingOnceForEachQueueThatHasTasks(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	server := queue.NewServer(s.rdb, s.namespace, workerSettings, servers.Logger(t), share(purchase, nil), share(draw, nil))
	t.Cleanup(server.Shutdown)
	s.otherType(s.wakeups(purchase))
	s.unrung(purchase)
	s.unrung(draw)
	for range 2 {
		server.Poll(t.Context())
		if n, err := s.rdb.LLen(t.Context(), s.wakeups(draw)).Result(); err != nil || n != 1 {
			t.Errorf("%d wakeups wait, %v", n, err)
		}
	}
}

// Tasks whose records are lost stand before it. The server is the test's own, as asynq's inspector
// describes no queue beside such tasks.
func TestATaskBehindThoseWithoutRecordsIsDelivered(t *testing.T) {
	t.Parallel()
	s, _ := ownSpace(t)
	delivered := make(chan uuid.UUID, 1)
	s.timed(s.rdb, 20*time.Millisecond, into(delivered))
	for range 500 {
		servers.NoError(t, s.rdb.LPush(t.Context(), s.key("pending"), uuid.NewString()).Err())
	}
	if id := s.enqueue(purchase); receive(t, delivered) != id {
		t.Error("another task was delivered")
	}
}

// It also notices when another release of asynq no longer goes through the waiter.
func TestAnIdleServerPollsAndTakesNothing(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	delivered := make(chan uuid.UUID, 1)
	s.timed(rdb, time.Second, into(delivered)) // as by default
	servers.Eventually(t, "the first poll", func() bool { return looks.polls.Load() > 0 })
	takes := looks.takes.Load()
	servers.Eventually(t, "further polls", func() bool { return looks.polls.Load() > 3 })
	if n := looks.takes.Load() - takes; n > 0 {
		t.Errorf("an idle server looked for tasks %d times", n)
	}
	s.enqueue(purchase)
	receive(t, delivered)
	if looks.takes.Load() == takes {
		t.Error("looks are not counted")
	}
}

// asynq counts a lease from before the wait: it is to ask again before that is over.
func TestAWaitHasAnEnd(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	s.start(queue.NewServer(rdb, s.namespace, workerSettings, servers.Logger(t), share(purchase, nil)).Timing(never, time.Second))
	servers.Eventually(t, "it looks again", func() bool { return looks.takes.Load() > 2 })
}

func TestAPausedQueueIsLeftAloneAndGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	const tasks = 5
	delivered := make(chan uuid.UUID, tasks)
	s.timed(rdb, 20*time.Millisecond, into(delivered))
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
	mine, others := make(chan uuid.UUID, 1), make(chan uuid.UUID, 1)
	server := s.quiet(rdb, into(mine))
	s.enqueue(purchase) // asynq's first enqueue pushes two wakeups, as Redis has no script yet
	receive(t, mine)
	servers.Eventually(t, "the server would get the wakeup", func() bool { return strings.Contains(s.rdb.Info(t.Context(), "clients").Val(), "blocked_clients:1") })
	takes, resume := looks.takes.Load(), server.Pause()
	id := s.enqueue(purchase)
	servers.Eventually(t, "the wakeup is passed on", func() bool { return s.rdb.LLen(t.Context(), queue.WakeupKey(s.namespace, purchase)).Val() == 1 })
	other := s.quiet(s.rdb, into(others))
	if receive(t, others) != id {
		t.Error("another task was delivered")
	}
	other.Shutdown()
	if n := looks.takes.Load() - takes; n > 0 {
		t.Errorf("a paused server looked for tasks %d times", n)
	}
	resume()
	if id := s.enqueue(purchase); receive(t, mine) != id {
		t.Error("another task was delivered")
	}
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
			s.otherType(s.wakeups(purchase))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			rdb, looks := s.counted()
			disturb(s, looks)
			delivered := make(chan uuid.UUID, 1)
			began := time.Now()
			s.start(queue.NewServer(rdb, s.namespace, workerSettings, servers.Logger(t), share(purchase, into(delivered))).Timing(never, never))
			servers.Eventually(t, "three looks", func() bool { return looks.takes.Load() > 2 })
			if n, most := looks.takes.Load(), 2+int64(time.Since(began)/queue.ErrorBackoff); n > most {
				t.Errorf("%d looks instead of %d", n, most)
			}
			looks.refused.Store(false)
			if id := s.enqueue(purchase); receive(t, delivered) != id {
				t.Error("another task was delivered")
			}
		})
	}
}

func TestShutdownEndsAWaitAndTakesNoTask(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	rdb, looks := s.counted()
	server := s.quiet(rdb, func(context.Context, queue.Task, bool) error {
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
	deaf := &atomic.Bool{}
	deafened := func(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &wire{Conn: conn, deaf: deaf}, err
		}
	}
	var rdb redis.UniversalClient
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		options := *cluster.Options()
		options.Dialer = deafened(new(net.Dialer).DialContext)
		rdb = redis.NewClusterClient(&options)
	} else {
		options := *s.rdb.(*redis.Client).Options()
		options.Dialer = deafened(options.Dialer)
		rdb = redis.NewClient(&options)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	delivered := make(chan uuid.UUID, 1)
	server := s.start(queue.NewServer(rdb, s.namespace, workerSettings, servers.Logger(t), share(purchase, into(delivered))).Timing(20*time.Millisecond, time.Second))
	servers.Eventually(t, "the server waits", server.Waits)
	deaf.Store(true)
	id := s.enqueue(purchase)
	servers.Eventually(t, "the wakeup is lost", func() bool { return !deaf.Load() })
	if receive(t, delivered) != id {
		t.Error("another task was delivered")
	}
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
