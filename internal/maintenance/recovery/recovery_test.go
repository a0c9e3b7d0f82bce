package recovery_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/internal/maintenance/recovery"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// place is what a sweep works on.
type place struct {
	t        *testing.T
	settings config.Settings
	db       *pgxpool.Pool
	rdb      *redis.Client
	client   *queue.Client
	sweeper  *recovery.Sweeper
}

func newPlace(t *testing.T) *place {
	t.Helper()
	settings := fixture.Settings(t)
	p := &place{t: t, settings: settings, db: fixture.Pool(t, settings), rdb: fixture.Redis(t, settings)}
	p.client = queue.NewClient(p.rdb, settings.Redis.Namespace, time.Minute)
	p.sweeper = recovery.New(settings, p.db, p.rdb, nil, fixture.Logger(t))
	return p
}

// sweep runs one sweep that must not fail.
func (p *place) sweep(name string) recovery.Counts {
	p.t.Helper()
	report, err := p.run(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return report.Counts
}

func (p *place) run(name string) (recovery.Report, error) {
	p.t.Helper()
	for _, s := range p.sweeper.Sweeps() {
		if s.Name == name {
			return p.sweeper.Run(context.Background(), s)
		}
	}
	p.t.Fatalf("there is no sweep %s", name)
	return recovery.Report{}, nil
}

// accept accepts n purchase jobs of a campaign that does not exist, in messages of
// the given size, and enqueues the messages when told to.
func (p *place) accept(n, size int, enqueue bool) (messages []outbox.Message) {
	p.t.Helper()
	campaign := uuid.New()
	for done := 0; done < n; done += size {
		var requests []job.Request
		for range min(size, n-done) {
			requests = append(requests, fixture.PurchaseRequest(p.t, campaign, "u", 0, 1))
		}
		_, made, err := outbox.Accept(p.t.Context(), p.db, requests)
		if err != nil {
			p.t.Fatal(err)
		}
		messages = append(messages, made...)
	}
	if enqueue {
		for _, r := range messages {
			if err := outbox.Enqueue(p.t.Context(), p.client, r); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	return messages
}

// age makes every message look as if it had been seen a minute ago.
func (p *place) age() {
	p.t.Helper()
	if _, err := p.db.Exec(p.t.Context(), `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 minute'`); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) pending() int {
	p.t.Helper()
	info, err := asynq.NewInspectorFromRedisClient(p.rdb).GetQueueInfo(queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)))
	if err != nil {
		p.t.Fatal(err)
	}
	return info.Pending
}

// delivery returns the delivery of the only message.
func (p *place) delivery() (n int) {
	p.t.Helper()
	if err := p.db.QueryRow(p.t.Context(), `SELECT delivery FROM outbox_messages`).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

func TestALostMessageIsIssuedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.accept(3, 3, false) // committed, and then the api died
	if got := p.sweep("lost-jobs"); got["looked_at"] != 0 {
		t.Errorf("a fresh message was looked for: %v", got)
	}
	p.age()
	if got := p.sweep("lost-jobs"); got["lost"] != 1 || got["jobs_reissued"] != 3 {
		t.Errorf("got %v", got)
	}
	if n := p.pending(); n != 1 {
		t.Errorf("%d tasks are pending", n)
	}
	p.age()
	if got := p.sweep("lost-jobs"); got["lost"] != 0 || got["pending"] != 1 {
		t.Errorf("the new message: %v", got)
	}
	fixture.Sound(t, p.db)
}

func TestABacklogIsNotDoubled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const jobs, size = 20_000, 10
	p.accept(jobs, size, true)
	for range 3 {
		p.age()
		var sweeps sync.WaitGroup // two at once do no harm either
		for range 2 {
			sweeps.Go(func() {
				if got := p.sweep("lost-jobs"); got["lost"] != 0 || got["jobs_reissued"] != 0 {
					t.Errorf("got %v", got)
				}
			})
		}
		sweeps.Wait()
	}
	if n := p.pending(); n != jobs/size {
		t.Errorf("%d tasks are pending, there were %d", n, jobs/size)
	}
}

func TestABacklogThatRedisForgotIsIssuedAgainInBundles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.accept(5_000, 1, false)
	p.age()
	if got := p.sweep("lost-jobs"); got["lost"] != 5_000 || got["jobs_reissued"] != 5_000 {
		t.Errorf("got %v", got)
	}
	if n := p.pending(); n > 5_000/outbox.MaxJobs+20 {
		t.Errorf("%d tasks for 5000 jobs", n)
	}
	fixture.Sound(t, p.db)
}

func TestWhileRedisIsAwayNothingIsLost(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.accept(1, 1, false)
	p.age()
	away := p.settings
	away.Redis.URL = "redis://127.0.0.1:1/0" // nobody is there
	p.sweeper = recovery.New(away, p.db, fixture.Redis(t, away), nil, fixture.Logger(t))
	report, err := p.run("lost-jobs")
	if err == nil || report.Error == "" || report.Counts["lost"] != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := p.delivery(); n != 1 {
		t.Errorf("the message has delivery %d", n)
	}
}

// hold runs a worker that takes one task and keeps it.
func (p *place) hold(heartbeat *queue.Heartbeat) (letGo func()) {
	p.t.Helper()
	took, release := make(chan struct{}), make(chan struct{})
	settings := p.settings.Worker
	settings.ShutdownTimeout = 100 * time.Millisecond
	server := queue.NewServer(p.rdb, p.settings.Redis.Namespace, settings, fixture.Logger(p.t), []string{string(job.KindPurchase)},
		map[string]queue.Handler{string(job.KindPurchase): func(ctx context.Context, task queue.Task, _ bool) error {
			if err := heartbeat.Started(ctx, task.ID); err != nil {
				p.t.Error(err)
			}
			close(took)
			<-release
			return nil
		}})
	if err := server.Start(); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-took:
	case <-time.After(20 * time.Second):
		p.t.Fatal("the task was not delivered")
	}
	return sync.OnceFunc(func() { close(release); server.Shutdown() })
}

func TestAMessageWithALiveWorkerIsLeftAloneAndWithADeadOneIssuedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.accept(2, 2, true)
	heartbeat := queue.NewHeartbeat(p.rdb, p.settings.Redis.Namespace, "worker-1", config.Worker{HeartbeatInterval: 50 * time.Millisecond, HeartbeatTTL: 500 * time.Millisecond})
	alive, die := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { heartbeat.Run(alive, fixture.Logger(t)) })
	letGo := p.hold(heartbeat)
	defer letGo()
	p.age()
	if got := p.sweep("lost-jobs"); got["active"] != 1 || got["lost"] != 0 {
		t.Errorf("with a live worker: %v", got)
	}
	die() // the heart stops; the task stays active in asynq
	beating.Wait()
	if got := p.sweep("lost-jobs"); got["lost"] != 1 || got["jobs_reissued"] != 2 {
		t.Errorf("with a dead worker: %v", got)
	}
	if n := p.delivery(); n != 2 {
		t.Errorf("a worker died with these jobs, and their message has delivery %d", n)
	}
	_, err := p.db.Exec(t.Context(), `UPDATE outbox_messages SET seen_at = clock_timestamp() - $1 * interval '1 second'`, (p.settings.Sweeps.LostJobsBackoff + time.Second).Seconds())
	if err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("lost-jobs"); got["looked_at"] != 1 {
		t.Errorf("the death made the next look later: %v", got)
	}
}

func TestOldRecordsGo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	fixture.Sell(t, p.db, id, 5)
	if got := p.sweep("old-records"); got["jobs_deleted"] != 0 {
		t.Errorf("young records: %v", got)
	}
	if _, err := p.db.Exec(t.Context(), `UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s'`); err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("old-records"); got["jobs_deleted"] != 5 {
		t.Errorf("old records: %v", got)
	}
	if got := p.sweep("lost-jobs"); got["jobs_reissued"] != 0 { // messages of deleted jobs
		t.Errorf("got %v", got)
	}
	fixture.Sound(t, p.db)
}
