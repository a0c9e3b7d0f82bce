package job_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"triprize/internal/job"
	"triprize/internal/testkit/servers"
)

// watching watches jobs until the test ends.
func watching(t *testing.T, db *pgxpool.Pool, announcements *job.Announcements, interval time.Duration) *job.Jobs {
	t.Helper()
	w := job.NewJobs(db, announcements, interval, servers.Logger(t), func([]uuid.UUID) {})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

func await(t *testing.T, w *job.Waiter) job.Status {
	t.Helper()
	select {
	case j := <-w.Changes():
		return j
	case <-time.After(servers.Patience):
		t.Fatal("not told")
		return job.Status{}
	}
}

func TestWaitersAreWokenByAnAnnouncement(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	db, rdb := servers.Pool(t, settings), servers.Redis(t, settings)
	announcements := job.NewAnnouncements(rdb, settings.Redis.Namespace)
	w := watching(t, db, announcements, time.Hour) // no poll comes to help
	ids := accepted(t, db, 2)
	waiters := []*job.Waiter{w.Waiter(ids[0]), w.Waiter(ids[0]), w.Waiter(ids[1])}
	servers.NoError(t, complete(t, db, job.Outcome{ID: ids[0], Result: json.RawMessage(`{}`)}))
	// Redis may not know the subscription yet, so announce until it is heard.
	stop := make(chan struct{})
	var announcing sync.WaitGroup
	announcing.Go(func() {
		for {
			_ = announcements.Publish(t.Context(), ids)
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	for _, w := range waiters[:2] {
		if j := await(t, w); j.State != job.Succeeded {
			t.Errorf("told of a job that is %s", j.State)
		}
	}
	close(stop)
	announcing.Wait()
	select {
	case j := <-waiters[2].Changes():
		t.Errorf("told of a job that is not final: %+v", j)
	default:
	}
}

func TestAPollFindsWhatWasNotAnnounced(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"an announcement is lost": "", "Redis is away": "redis://127.0.0.1:1/0"} {
		settings := servers.Settings(t)
		db := servers.Pool(t, settings)
		if url != "" {
			settings.Redis.URL = url
		}
		w := watching(t, db, job.NewAnnouncements(servers.Redis(t, settings), settings.Redis.Namespace), 20*time.Millisecond)
		id := accepted(t, db, 1)[0]
		waiter := w.Waiter(id)
		fail(t, db, id)
		if j := await(t, waiter); j.State != job.Failed {
			t.Errorf("%s: told of %+v", name, j)
		}
	}
}

func TestAStoppedWaiterIsForgotten(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	w := job.NewJobs(nil, job.NewAnnouncements(servers.Redis(t, settings), "n"), time.Second, servers.Logger(t), func([]uuid.UUID) {})
	id := uuid.New()
	a, b := w.Waiter(id), w.Waiter(id)
	a.Stop()
	a.Stop() // twice does no harm
	if n := w.Waiting(); n != 1 {
		t.Errorf("%d jobs are waited for", n)
	}
	b.Stop()
	if n := w.Waiting(); n != 0 {
		t.Errorf("%d jobs are waited for", n)
	}
}

// As after a firewall has forgotten a connection, or a primary is cut off: a subscription without messages is silent, too.
func TestASubscriptionThatDoesNotAnswerIsMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var subscriptions atomic.Int64
		serve := func(server net.Conn) { // answers what opens a connection, and nothing else
			for lines := bufio.NewScanner(server); lines.Scan(); {
				if lines.Text() == "hello" {
					go func() { _, _ = io.WriteString(server, "-ERR unknown command\r\n") }()
				} else if lines.Text() == "subscribe" {
					subscriptions.Add(1)
				}
			}
		}
		rdb := redis.NewClient(&redis.Options{DisableIdentity: true, MaxRetries: -1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go serve(server)
			return client, nil
		}})
		t.Cleanup(func() { servers.NoError(t, rdb.Close()) })
		watching(t, nil, job.NewAnnouncements(rdb, "n"), time.Second)
		time.Sleep(time.Minute)
		if n := subscriptions.Load(); n < 3 || n > 6 {
			t.Errorf("%d subscriptions in a minute", n)
		}
	})
}
