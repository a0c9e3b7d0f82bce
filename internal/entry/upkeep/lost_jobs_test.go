package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// hold runs a worker that takes all messages, which are enqueued, and keeps them
// until the test ends. die makes the worker silent; its tasks stay active in asynq.
func (p *setup) hold(messages []job.Message) (die func()) {
	p.t.Helper()
	const worker = "the-worker"
	heartbeat := queue.NewHeartbeat(p.rdb, p.settings.Redis.Namespace, queue.RoleWorker, worker, config.Worker{HeartbeatInterval: servers.Patience, HeartbeatTTL: 24 * time.Hour})
	ctx, end := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { heartbeat.Run(ctx, servers.Logger(p.t)) })
	die = sync.OnceFunc(func() { end(); beating.Wait() })
	p.t.Cleanup(die)
	servers.Eventually(p.t, "the worker is heard", func() bool {
		present, err := queue.ReadProcesses(p.t.Context(), p.rdb, p.settings.Redis.Namespace)
		return err == nil && len(present[queue.RoleWorker].Alive) == 1
	})

	var took atomic.Int64
	release := make(chan struct{})
	settings := p.settings.Worker
	settings.ShutdownTimeout = servers.Patience
	server := queue.NewServer(p.rdb, p.settings.Redis.Namespace, settings, servers.Logger(p.t),
		queue.Consumer{Kind: string(job.KindPurchase), Concurrency: len(messages) + 1, Handle: func(ctx context.Context, task queue.Task, _ bool) error {
			if _, err := heartbeat.Acquire(ctx, task.ID); err != nil {
				p.t.Error(err)
			}
			took.Add(1)
			<-release
			return nil
		}})
	servers.NoError(p.t, server.Start(context.Background()))
	p.t.Cleanup(func() { close(release); server.Shutdown() })
	servers.Eventually(p.t, "every task is delivered", func() bool { return took.Load() >= int64(len(messages)) })
	return die
}

func TestMessagesInWorkDoNotHideLostOnes(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(10, 2)
	const held, lost = 45, 15
	messages := p.accept(held, 1, true)
	p.hold(messages)
	p.accept(lost, 1, false)
	servers.Exec(t, p.db, `UPDATE outbox_messages SET seen_at = seen_at - interval '2 hours'`) // the held ones stay the oldest
	if got := p.sweep("lost-jobs"); got["checked"] != held+lost || got["active"] != held || got["lost"] != lost || got["jobs_reissued"] != lost {
		t.Errorf("got %v", got)
	}
	if got := p.sweep("lost-jobs"); got["checked"] != held || got["active"] != held {
		t.Errorf("the second run: %v", got)
	}
}

// ownRedis gives a setup a Redis of its own; refuse makes it refuse what needs memory, while it answers
// everything else.
func (p *setup) ownRedis() (refuse func(bool)) {
	p.t.Helper()
	server := servers.OwnRedis(p.t)
	p.settings.Redis.URL = server.URL()
	p.rdb = servers.Redis(p.t, p.settings)
	p.client = queue.NewClient(p.rdb, p.settings.Redis.Namespace)
	p.with(upkeep.Options{})
	return func(on bool) {
		p.t.Helper()
		most := "0" // no limit
		if on {
			most = "1"
		}
		servers.NoError(p.t, p.rdb.ConfigSet(p.t.Context(), "maxmemory", most).Err())
	}
}

// snoozed accepts a purchase of each user, and puts them off until their campaign is free.
func (p *setup) snoozed(campaignID uuid.UUID, users ...string) {
	p.t.Helper()
	var requests []job.Request
	for _, user := range users {
		requests = append(requests, fixture.PurchaseRequest(p.t, campaignID, user, 0, 1))
	}
	_, messages, err := job.Accept(p.t.Context(), p.db, requests)
	servers.NoError(p.t, err)
	servers.NoError(p.t, job.Snooze(p.t.Context(), p.db, messages[0].ID, nil))
}

func TestJobsThatCannotBeResumedDoNotHideLostOnes(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	refuse := p.ownRedis()
	p.accept(3, 3, false)
	p.age()
	p.snoozed(uuid.New(), "a")
	refuse(true)
	if report, err := p.run("lost-jobs"); err == nil || report.Counts["jobs_resumed"] != 1 || report.Counts["lost"] != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestARedisThatRefusesWritesMakesNoDeliveries(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	refuse := p.ownRedis()
	p.accept(3, 3, false) // the api could not enqueue it either
	refuse(true)
	for run := range 4 {
		p.age()
		report, err := p.run("lost-jobs")
		if err == nil || report.Counts["lost"] != 1 || report.Counts["jobs_reissued"] != 0 {
			t.Fatalf("run %d: %+v, %v", run+1, report, err)
		}
		if n := p.delivery(); n != 1 {
			t.Fatalf("after run %d the message has delivery %d, and nothing was ever enqueued", run+1, n)
		}
	}
	refuse(false)
	p.age()
	if got := p.sweep("lost-jobs"); got["jobs_reissued"] != 3 {
		t.Errorf("got %v", got)
	}
	tasks, err := asynq.NewInspectorFromRedisClient(p.rdb).ListPendingTasks(queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)))
	if err != nil || len(tasks) != 1 {
		t.Fatal(tasks, err)
	}
	message, err := job.MessageOf(queue.Task{ID: uuid.MustParse(tasks[0].ID), Kind: tasks[0].Type, Payload: tasks[0].Payload})
	if err != nil || message.Delivery != 1 || len(message.Jobs) != 3 {
		t.Errorf("the first delivery is number %d, %v", message.Delivery, err)
	}
	fixture.Sound(t, p.db)
}

func TestTheLogNamesACampaignThatStaysLockedOnce(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	log := &servers.Journal{}
	p.sweeper = upkeep.New(p.settings, p.db, p.rdb, slog.New(slog.NewTextHandler(log, nil)), upkeep.Options{})
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	p.snoozed(id, "a", "b")
	tx, err := p.db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SET LOCAL application_name = 'somebody'`)
	servers.Exec(t, tx, `SELECT FROM campaigns WHERE id = $1 FOR UPDATE`, id)
	lines := func(level slog.Level, parts ...string) (n int) {
		for line := range strings.Lines(log.String()) {
			found := strings.Contains(line, "level="+level.String())
			for _, part := range append(parts, "campaign="+id.String(), "jobs=2") {
				found = found && strings.Contains(line, part)
			}
			if found {
				n++
			}
		}
		return n
	}
	for _, after := range []time.Duration{time.Hour, 0, 0, 0} {
		p.sweeper.SetWarnAfter(after)
		if got := p.sweep("lost-jobs"); got["jobs_resumed"] != 0 || got["checked"] != 0 {
			t.Errorf("while it is locked: %v", got)
		}
		if warned := lines(slog.LevelWarn); warned > 0 && after > 0 || p.sweeper.LockedCampaigns() != 1 {
			t.Errorf("%d warnings after %s, %d campaigns are locked", warned, after, p.sweeper.LockedCampaigns())
		}
	}
	if warned := lines(slog.LevelWarn, fmt.Sprint("pid=", tx.Conn().PgConn().PID()), "application=somebody"); warned != 1 {
		t.Errorf("%d warnings: %s", warned, log)
	}
	servers.NoError(t, tx.Rollback(t.Context()))
	if got := p.sweep("lost-jobs"); got["jobs_resumed"] != 2 || p.pending() != 1 || p.sweeper.LockedCampaigns() != 0 {
		t.Errorf("when it is free: %v, %d tasks, %d campaigns are locked", got, p.pending(), p.sweeper.LockedCampaigns())
	}
	if told := lines(slog.LevelInfo, "not locked any more"); told != 1 {
		t.Errorf("%d lines about the end: %s", told, log)
	}
	fixture.Sound(t, p.db)
}

// A purchase of no campaign is refused by a worker: it must not wait for one.
func TestJobsOfNoCampaignWaitForNothing(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.snoozed(uuid.New(), "a")
	if got := p.sweep("lost-jobs"); got["jobs_resumed"] != 1 || p.pending() != 1 {
		t.Errorf("%v, %d tasks", got, p.pending())
	}
}
