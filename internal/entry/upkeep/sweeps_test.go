package upkeep_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// setup is a database, a Redis and a sweeper.
type setup struct {
	t        *testing.T
	settings config.Settings
	db       *pgxpool.Pool
	view     postgres.Pool // db, or one whose transactions do not wait long
	rdb      *redis.Client
	client   *queue.Client
	sweeper  *upkeep.Sweeper
	registry *prometheus.Registry
	triggers *drawing.Triggers
}

// newSetup returns a setup where nothing is overdue, stale or stuck before an hour is
// over. Tests move times two hours back.
func newSetup(t *testing.T) *setup {
	t.Helper()
	settings := servers.Patient(servers.Settings(t))
	settings.Sweeps.LostJobsBackoff, settings.Sweeps.LostJobsMaxBackoff = time.Hour, 24*time.Hour
	settings.Sweeps.StuckDrawsAfter, settings.Draw.Lease = time.Hour, time.Hour
	p := &setup{t: t, settings: settings, db: servers.Pool(t, settings), rdb: servers.Redis(t, settings)}
	p.view = p.db
	p.client = queue.NewClient(p.rdb, settings.Redis.Namespace)
	p.registry = prometheus.NewRegistry()
	p.triggers = drawing.NewTriggers(p.registry, servers.Logger(t))
	p.with(upkeep.Options{Draws: p.triggers})
	return p
}

// with makes a sweeper with options.
func (p *setup) with(o upkeep.Options) {
	p.t.Helper()
	p.sweeper = upkeep.New(p.settings, p.view, p.rdb, servers.Logger(p.t), o)
}

// wantTriggered wants so many draws to be counted that something has triggered.
func (p *setup) wantTriggered(by job.By, want float64) {
	p.t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if got := m.GetCounter().GetValue(); m.GetLabel()[0].GetValue() == string(by) && got != want {
			p.t.Errorf("%v draws are triggered by %s, want %v", got, by, want)
		}
	}
}

// sweep runs one sweep that must not fail.
func (p *setup) sweep(name string) sweep.Counts {
	p.t.Helper()
	report, err := p.run(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return report.Counts
}

func (p *setup) run(name string) (sweep.Report, error) {
	p.t.Helper()
	for _, s := range p.sweeper.Sweeps {
		if s.Name == name {
			return p.sweeper.Run(context.Background(), s)
		}
	}
	p.t.Fatalf("there is no sweep %s", name)
	return sweep.Report{}, nil
}

// accept makes n purchase jobs of a campaign that does not exist, with messages for
// the given number of jobs each, as accepting them makes them; it enqueues the
// messages when told to.
func (p *setup) accept(n, size int, enqueue bool) (messages []job.Message) {
	p.t.Helper()
	campaign := uuid.New()
	rows, err := p.db.Query(p.t.Context(), `
		WITH made AS (
			INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, expires_at)
			SELECT gen_random_uuid(), 'test', $1 || '/' || i, sha256('test'), $2, $1::uuid, 'u', '{}', clock_timestamp() + interval '1 day'
			FROM generate_series(0, $3 - 1) AS i
			RETURNING id
		), numbered AS (
			SELECT id, (row_number() OVER () - 1) / $4 AS message FROM made
		)
		INSERT INTO outbox_messages (id, kind, jobs)
		SELECT gen_random_uuid(), $2, array_agg(id) FROM numbered GROUP BY message
		RETURNING id, jobs`, campaign.String(), string(job.KindPurchase), n, size)
	if err != nil {
		p.t.Fatal(err)
	}
	var id uuid.UUID
	var jobs []uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id, &jobs}, func() error {
		m := job.Message{ID: id, Kind: job.KindPurchase, Delivery: 1}
		for _, j := range jobs {
			m.Jobs = append(m.Jobs, job.Ref{ID: j, CampaignID: campaign})
		}
		messages = append(messages, m)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if enqueue {
		for _, m := range messages {
			if err := p.client.Enqueue(p.t.Context(), m.Task()); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	return messages
}

// age makes every message look as if it had been seen two hours ago.
func (p *setup) age() {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '2 hours'`)
}

func (p *setup) pending() int {
	p.t.Helper()
	info, err := asynq.NewInspectorFromRedisClient(p.rdb).GetQueueInfo(queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)))
	if err != nil {
		p.t.Fatal(err)
	}
	return info.Pending
}

// delivery returns the delivery of the only message.
func (p *setup) delivery() (n int) {
	p.t.Helper()
	if err := p.db.QueryRow(p.t.Context(), `SELECT delivery FROM outbox_messages`).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// asynq's records say that the tasks wait, and no worker gets them.
func TestTasksThatAreInNoListAreLost(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.accept(3, 1, true)
	pending := "asynq:{" + queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)) + "}:pending"
	left := p.rdb.LPop(t.Context(), pending).Val()
	if err := p.rdb.Del(t.Context(), pending).Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.rdb.LPush(t.Context(), pending, left).Err(); err != nil {
		t.Fatal(err)
	}
	p.age()
	if got := p.sweep("lost-jobs"); got["lost"] != 2 || got["pending"] != 1 || got["jobs_reissued"] != 2 {
		t.Errorf("got %v", got)
	}
	records := "asynq:{" + queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)) + "}:t:*"
	if keys := p.rdb.Keys(t.Context(), records).Val(); p.pending() != 2 || len(keys) != 2 { // the two lost jobs are in one task
		t.Errorf("%d tasks wait, with the records %v", p.pending(), keys)
	}
	fixture.Sound(t, p.db)
}

// The backlog is larger than a batch of the sweep.
func TestABacklogIsNotDoubled(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(50, 40)
	const jobs, size = 2_000, 10
	p.accept(jobs, size, true)
	for range 3 {
		p.age()
		var sweeps sync.WaitGroup // two at once do no harm either
		for range 2 {
			sweeps.Go(func() {
				report, err := p.run("lost-jobs")
				if err != nil || report.Counts["lost"] != 0 || report.Counts["jobs_reissued"] != 0 {
					t.Errorf("%+v, %v", report, err)
				}
			})
		}
		sweeps.Wait()
	}
	if n := p.pending(); n != jobs/size {
		t.Errorf("%d tasks are pending, there were %d", n, jobs/size)
	}
}

func TestWhileRedisIsAwayNothingIsLost(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.accept(1, 1, false)
	p.age()
	away := p.settings
	away.Redis.URL = "redis://127.0.0.1:1/0" // no server is there
	p.sweeper = upkeep.New(away, p.db, servers.Redis(t, away), servers.Logger(t), upkeep.Options{})
	report, err := p.run("lost-jobs")
	if err == nil || report.Error == "" || report.Counts["lost"] != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := p.delivery(); n != 1 {
		t.Errorf("the message has delivery %d", n)
	}
}

func TestAMessageWithALiveWorkerIsLeftAloneAndWithADeadOneIssuedAgain(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	die := p.hold(p.accept(2, 2, true))
	p.age()
	if got := p.sweep("lost-jobs"); got["active"] != 1 || got["lost"] != 0 {
		t.Errorf("with a live worker: %v", got)
	}
	die()
	if got := p.sweep("lost-jobs"); got["lost"] != 1 || got["jobs_reissued"] != 2 { // being seen active has not put it off
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

// A killed worker leaves two things behind, which end at the same time, counted
// from its death at the latest: its heartbeat, and the backoff of the message, which was
// last seen before the worker took it. The next run of the sweep issues the message
// again, as a new task.
func TestByDefaultAJobOfAKilledWorkerRunsAgainWithin15Seconds(t *testing.T) {
	t.Parallel()
	const (
		promise = 15 * time.Second
		forward = time.Second // how often package queue looks for tasks whose delay is over
		poll    = time.Second // how often it looks for tasks that no worker was woken for
	)
	over := max(queue.HeartbeatTTL, job.LostJobsBackoff)
	if worst := over + job.LostJobsEvery + forward + poll; worst > promise {
		t.Errorf("it takes up to %s", worst)
	}
}
