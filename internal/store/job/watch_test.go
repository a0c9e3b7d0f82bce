package job_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// watching runs a Watch until the test ends.
func watching(t *testing.T, db *pgxpool.Pool, announcements *job.Announcements, interval time.Duration) *job.Watch {
	t.Helper()
	watch := job.NewWatch(db, announcements, interval, fixture.Logger(t))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { watch.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return watch
}

func await(t *testing.T, w *job.Waiter, within time.Duration) job.Job {
	t.Helper()
	select {
	case j := <-w.Final():
		return j
	case <-time.After(within):
		t.Fatalf("not told within %s", within)
		return job.Job{}
	}
}

func TestWaitersAreWokenByAnAnnouncement(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	db, rdb := fixture.Pool(t, settings), fixture.Redis(t, settings)
	announcements := job.NewAnnouncements(rdb, settings.Redis.Namespace)
	watch := watching(t, db, announcements, time.Hour) // no poll comes to help
	ids := accepted(t, db, 2)
	waiters := []*job.Waiter{watch.Waiter(ids[0]), watch.Waiter(ids[0]), watch.Waiter(ids[1])}
	if err := settle(t, db, job.Outcome{ID: ids[0], Result: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	// The subscription may not stand yet, so announce until it is heard.
	stop := make(chan struct{})
	var announcing sync.WaitGroup
	announcing.Go(func() {
		for {
			_, _ = rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
				announcements.Publish(t.Context(), pipe, ids)
				return nil
			})
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	for _, w := range waiters[:2] {
		if j := await(t, w, 10*time.Second); j.State != job.Succeeded {
			t.Errorf("told of a job that is %s", j.State)
		}
	}
	close(stop)
	announcing.Wait()
	select {
	case j := <-waiters[2].Final():
		t.Errorf("told of a job that is not final: %+v", j)
	default:
	}
}

func TestWaitersArePolledForWithoutRedis(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	db := fixture.Pool(t, settings)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // nobody is there
	announcements := job.NewAnnouncements(fixture.Redis(t, settings), settings.Redis.Namespace)
	watch := watching(t, db, announcements, 20*time.Millisecond)
	id := accepted(t, db, 1)[0]
	waiter := watch.Waiter(id)
	if err := settle(t, db, job.Outcome{ID: id, Result: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if j := await(t, waiter, 10*time.Second); j.ID != id || j.State != job.Succeeded {
		t.Errorf("told of %+v", j)
	}
}

func TestAMissedAnnouncementIsMadeUpForByAPoll(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	db, rdb := fixture.Pool(t, settings), fixture.Redis(t, settings)
	watch := watching(t, db, job.NewAnnouncements(rdb, settings.Redis.Namespace), 20*time.Millisecond)
	id := accepted(t, db, 1)[0]
	waiter := watch.Waiter(id)
	if err := settle(t, db, job.Outcome{ID: id, Problem: &job.Problem{Code: "sold-out"}}); err != nil { // and nobody says so
		t.Fatal(err)
	}
	if j := await(t, waiter, 10*time.Second); j.State != job.Failed {
		t.Errorf("told of %+v", j)
	}
}

func TestAStoppedWaiterIsForgotten(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	watch := job.NewWatch(nil, job.NewAnnouncements(fixture.Redis(t, settings), "n"), time.Second, fixture.Logger(t))
	id := uuid.New()
	a, b := watch.Waiter(id), watch.Waiter(id)
	a.Stop()
	a.Stop() // twice does no harm
	if n := watch.Waiting(); n != 1 {
		t.Errorf("%d jobs are waited for", n)
	}
	b.Stop()
	if n := watch.Waiting(); n != 0 {
		t.Errorf("%d jobs are waited for", n)
	}
}
