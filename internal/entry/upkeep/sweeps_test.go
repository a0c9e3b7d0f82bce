package upkeep_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/books"
	"triprize/internal/campaign"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/stripe"
	"triprize/internal/platform/sweep"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/trail"
	"triprize/internal/wallet"
)

func TestMain(m *testing.M) { servers.Main(m) }

// setup is a database, a Redis and a sweeper.
type setup struct {
	t        *testing.T
	settings config.Settings
	db       *pgxpool.Pool
	view     postgres.Pool // db, or one whose transactions do not wait long
	rdb      redis.UniversalClient
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
	if got := servers.Counted(p.t, p.registry, "triprize_draws_triggered_total", string(by)); got != want {
		p.t.Errorf("%v draws are triggered by %s, want %v", got, by, want)
	}
}

// sweep runs one sweep that must not fail.
func (p *setup) sweep(name string) sweep.Counts {
	p.t.Helper()
	report, err := p.run(name)
	servers.NoError(p.t, err)
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

// accept accepts n purchases of a campaign that does not exist, in messages of some jobs each, and enqueues the messages
// when told to.
func (p *setup) accept(n, size int, enqueue bool) (messages []job.Message) {
	p.t.Helper()
	id := uuid.New()
	for range n / size {
		requests := make([]job.Request, size)
		for i := range requests {
			requests[i] = fixture.PurchaseRequest(p.t, id, "u", 0, 1)
		}
		_, made, err := job.Accept(p.t.Context(), p.db, requests)
		servers.NoError(p.t, err)
		messages = append(messages, made...)
	}
	for _, m := range messages {
		if !enqueue {
			break
		}
		servers.NoError(p.t, p.client.Enqueue(p.t.Context(), m.Task()))
	}
	return messages
}

// age makes every message look as if it had been seen two hours ago.
func (p *setup) age() {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '2 hours'`)
}

func (p *setup) pending() int64 { return p.queued(job.KindPurchase) }

// delivery returns the delivery of the only message.
func (p *setup) delivery() int { return p.count(`SELECT delivery FROM outbox_messages`) }

// asynq's records say that the tasks wait, and no worker gets them.
func TestTasksThatAreInNoListAreLost(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.accept(3, 1, true)
	pending := "asynq:{" + queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)) + "}:pending"
	left := p.rdb.LPop(t.Context(), pending).Val()
	servers.NoError(t, p.rdb.Del(t.Context(), pending).Err())
	servers.NoError(t, p.rdb.LPush(t.Context(), pending, left).Err())
	p.age()
	if got := p.sweep("lost-jobs"); got["lost"] != 2 || got["pending"] != 1 || got["jobs_reissued"] != 2 {
		t.Errorf("got %v", got)
	}
	records := "asynq:{" + queue.Name(p.settings.Redis.Namespace, string(job.KindPurchase)) + "}:t:*"
	if keys := servers.Keys(t, p.rdb, records); p.pending() != 2 || len(keys) != 2 { // the two lost jobs are in one task
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
	servers.Exec(t, p.db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - $1 * interval '1 second'`, (p.settings.Sweeps.LostJobsBackoff + time.Second).Seconds())
	if got := p.sweep("lost-jobs"); got["checked"] != 1 {
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

// A swept is what a sweep does, once: while somebody has locked a row that is due, when that is free, and never again.
type swept struct {
	due     func(p *setup) (locked string) // makes what is due and what is not, and says which row to lock
	meets   string                         // what it changes while the row is locked
	changes string                         // when it is free
	counts  sweep.Counts                   // of this run, those that are not zero
	again   sweep.Counts                   // of a further run
	tasks   map[job.Kind]int64             // that wait in the queue then
}

var each = map[string]swept{
	"expired-holds": {
		due: func(p *setup) string {
			busy, id := fixture.Campaign(p.t, p.db, fixture.Draft(3)), fixture.Campaign(p.t, p.db, fixture.Draft(4))
			desk := fixture.Holds(p.t, p.db, nil, nil)
			fixture.Hold(p.t, desk, fixture.HoldRequest(id, "in time", fixture.At(4, 1)))
			for _, of := range []uuid.UUID{id, busy} {
				fixture.EndHold(p.t, p.db, fixture.Hold(p.t, desk, fixture.HoldRequest(of, "late", fixture.At(2, 1))))
			}
			return lockOf("campaigns", busy)
		},
		meets: `
			~ campaign 2: positions_reserved=2 board_version=2 → positions_reserved=1 board_version=3
			~ position 2,1: held late hold 2 → free; v1 board_version=2 expires_at=past → v2 board_version=3
			~ hold 2: active → expired
			+ held late 2,1 campaign 2 pause_seconds=+Inf`,
		changes: `
			~ campaign 1: positions_reserved=1 board_version=1 → board_version=2
			~ position 2,1: held late hold 3 → free; v1 board_version=1 expires_at=past → v2 board_version=2
			~ hold 3: active → expired
			+ held late 2,1 campaign 1 pause_seconds=+Inf`,
		counts: sweep.Counts{"campaigns": 1, "expired": 1, "freed": 1},
	},
	"expired-authorizations": {
		due: func(p *setup) string {
			busy := p.authorized("mina", "-1 s")
			p.authorized("otto", "-1 s")
			p.authorized("in time", "1 hour")
			return lockOf("wallets", busy)
		},
		meets: `
			~ wallet otto: held=30 v2 → v3
			~ authorization 2: active → expired
			+ entry 7 expire 30 wallet otto v3 held -30 → funding reference=expire/authorization 2 authorization 2`,
		changes: `
			~ wallet mina: held=30 v2 → v3
			~ authorization 1: active → expired
			+ entry 8 expire 30 wallet mina v3 held -30 → funding reference=expire/authorization 1 authorization 1`,
		counts: sweep.Counts{"expired": 1, "wallets": 1},
	},
	"expired-reservations": {
		due: func(p *setup) string {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(8))
			busy, _ := fixture.Reserve(p.t, p.db, id, "busy", 1, -time.Second)
			fixture.Reserve(p.t, p.db, id, "late", 1, -time.Second)
			fixture.Reserve(p.t, p.db, id, "in time", 1, time.Hour)
			claimed, _ := fixture.Reserve(p.t, p.db, id, "claimed", 1, -time.Second)
			p.exec(`UPDATE payments SET lease_until = clock_timestamp() + interval '1 hour' WHERE purchase_id = '` + claimed.String() + `'`)
			for _, phase := range []payment.Phase{payment.Capturing, payment.Captured, payment.Expiring, payment.Ended} {
				bought, _ := fixture.Reserve(p.t, p.db, id, string(phase), 1, -time.Second)
				fixture.Advance(p.t, p.db, bought, phase)
			}
			p.exec(`UPDATE payments SET due_at = clock_timestamp() + interval '10 hours' WHERE phase = 'reserved'`) // not while this runs
			return `payments WHERE purchase_id = '` + busy.String() + `'`
		},
		meets: `
			~ payment of purchase 2: reserved → expiring; due_at=10h → v1 due_at=past; → ending=expired
			+ step of purchase 2 expired`,
		changes: `
			~ payment of purchase 1: reserved → expiring; due_at=10h → v1 due_at=past; → ending=expired
			+ step of purchase 1 expired`,
		counts: sweep.Counts{"expired": 1, "found": 1},
	},
	"due-items": {
		due: func(p *setup) string {
			p.takesCards()
			id := fixture.Campaign(p.t, p.db, fixture.Draft(8))
			busy, _ := fixture.Reserve(p.t, p.db, id, "busy", 1, time.Hour)
			fixture.Reserve(p.t, p.db, id, "due", 1, time.Hour)
			claimed, _ := fixture.Reserve(p.t, p.db, id, "claimed", 1, time.Hour)
			bought, _ := fixture.BuyByCard(p.t, p.db, id, "otto", 0, 1)
			if _, err := fixture.Seller(p.db).Cancel(p.t.Context(), fixture.Accept(p.t, p.db, fixture.CancelRequest(p.t, id, bought)), sale.WaitForCampaign); err != nil {
				p.t.Fatal(err)
			}
			e := cards.NewEvents(p.db, stripe.NewReader(false), servers.Logger(p.t), prometheus.NewRegistry())
			if _, err := e.Store(p.t.Context(), []payprovider.Event{{ID: "evt_1", Type: "payment_intent.succeeded", CreatedAt: time.Now()}}); err != nil {
				p.t.Fatal(err)
			}
			p.exec(`UPDATE payment_events SET received_at = received_at - interval '2 hours'`)
			p.exec(`UPDATE payments SET due_at = clock_timestamp() WHERE phase = 'reserved'`)
			p.exec(`UPDATE payments SET lease_until = clock_timestamp() + interval '1 hour' WHERE purchase_id = '` + claimed.String() + `'`)
			return `payments WHERE purchase_id = '` + busy.String() + `'`
		},
		meets: `
			~ payment of purchase 2: due_at=past → due_at=60m
			~ refund 1: due_at=past → due_at=60m`,
		changes: `
			~ payment of purchase 1: due_at=past → due_at=60m`,
		counts: sweep.Counts{"payments_due": 1, "payments_enqueued": 1, "events_enqueued": 1},
		again:  sweep.Counts{"events_enqueued": 1},
		tasks:  map[job.Kind]int64{job.KindPayment: 2, job.KindRefund: 1, job.KindEvent: 3},
	},
	"missed-events": {
		due: func(p *setup) string {
			p.takesCards()
			p.with(upkeep.Options{Events: cards.NewEvents(p.db, stripe.NewReader(false), servers.Logger(p.t), prometheus.NewRegistry()),
				Provider: missed{event: payprovider.Event{ID: "evt_1", Type: "payment_intent.succeeded", CreatedAt: time.Now().Add(-30 * time.Minute)}}})
			return ""
		},
		changes: `
			+ provider's event payment_intent.succeeded id=evt_1 source=list`,
		counts: sweep.Counts{"listed": 1, "stored": 1},
		again:  sweep.Counts{"listed": 1},
		tasks:  map[job.Kind]int64{job.KindEvent: 1},
	},
	"missing-permissions": {
		due: func(p *setup) string {
			p.with(upkeep.Options{Provider: permissions{has: map[string]bool{"charge_write": false, "event_read": true}}})
			return ""
		},
		counts: sweep.Counts{"asked": 2, "missing": 1},
		again:  sweep.Counts{"asked": 2, "missing": 1},
	},
	"reconciliation": {due: func(p *setup) string {
		p.with(upkeep.Options{Provider: permissions{}})
		return ""
	}},
	"stale-locks": {
		due: func(p *setup) string {
			busy := p.claimed(2 * time.Hour)
			p.claimed(2 * time.Hour)
			p.claimed(0)
			return lockOf("campaigns", busy)
		},
		meets: `
			~ campaign 2: execution_lock_id=id 20 execution_version=1 → execution_version=2`,
		changes: `
			~ campaign 1: execution_lock_id=id 19 execution_version=1 → execution_version=2`,
		counts: sweep.Counts{"released": 1},
	},
	"ended-sales": {
		due: func(p *setup) string {
			p.sale(campaign.UnsoldCancel, true)
			p.sale(campaign.UnsoldCancel, false)
			p.sale(campaign.UnsoldStay, true)
			soldOut := p.sale(campaign.UnsoldCancel, false)
			fixture.SellOut(p.t, p.db, soldOut)
			p.endSale(soldOut, true)
			old := p.sale(campaign.UnsoldStay, true) // an earlier release has published it: its rules name no end
			servers.Exec(p.t, p.db, `UPDATE campaigns SET policies = policies::jsonb || '{"unsold": "draw"}' WHERE id = $1`, old)
			return ""
		},
		changes: `
			+ job 8 campaign-cancellation queued client=system idempotency_key=unsold-campaign 1-20260101T000000.000000Z campaign 1 expires_at=24h
			+ message 3 campaign-cancellation job 8`,
		counts: sweep.Counts{"enqueued": 1, "found": 1},
		again:  sweep.Counts{"found": 1},
		tasks:  map[job.Kind]int64{job.KindCampaignCancellation: 1},
	},
	"stuck-draws": {
		due: func(p *setup) string {
			busy, _ := p.givenUp(2*time.Hour), p.givenUp(2*time.Hour)
			p.givenUp(time.Minute) // sold out a moment ago
			p.stuck(fixture.SellOut(p.t, p.db, fixture.Campaign(p.t, p.db, fixture.Draft(3))).CampaignID)
			done := fixture.SellOut(p.t, p.db, fixture.Campaign(p.t, p.db, fixture.Draft(3)))
			if _, err := drawing.NewDrawer(p.db, fixture.Key(p.t), p.settings.Draw, drawing.DrawerOptions{}, servers.Logger(p.t)).Run(p.t.Context(), done); err != nil {
				p.t.Fatal(err)
			}
			p.stuck(done.CampaignID)
			if _, ok, err := campaign.Claim(p.t.Context(), p.db, p.givenUp(2*time.Hour), "a worker", time.Hour); err != nil || !ok {
				p.t.Fatal(ok, err)
			}
			return lockOf("campaigns", busy)
		},
		meets: `
			+ job 43 draw queued client=system idempotency_key=lottery-draw-campaign 2/id 38 campaign 2 expires_at=24h
			+ message 13 draw job 43`,
		changes: `
			+ job 44 draw queued client=system idempotency_key=lottery-draw-campaign 1/id 39 campaign 1 expires_at=24h
			+ message 14 draw job 44`,
		counts: sweep.Counts{"enqueued": 1, "found": 1},
		tasks:  map[job.Kind]int64{job.KindDraw: 2},
	},
	"lost-jobs": {
		due: func(p *setup) string {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(3))
			fixture.Accept(p.t, p.db, fixture.PurchaseRequest(p.t, id, "lost", 0, 1)) // committed, and then the api died
			p.age()
			fixture.Accept(p.t, p.db, fixture.PurchaseRequest(p.t, id, "on its way", 0, 1))
			return ""
		},
		changes: `
			- message 1 purchase job 1
			+ message 3 purchase job 1`,
		counts: sweep.Counts{"jobs_reissued": 1, "checked": 1, "lost": 1},
		tasks:  map[job.Kind]int64{job.KindPurchase: 1},
	},
	"old-records": {
		due: func(p *setup) string {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(3))
			fixture.Complete(p.t, p.db, fixture.ChosenRequest(p.t, id, "old", fixture.At(2, 1)))
			p.jobsOver()
			fixture.Complete(p.t, p.db, fixture.PurchaseRequest(p.t, id, "new", 0, 1))
			insertApproval(p, "-31 days", "expired")
			insertApproval(p, "-29 days", "expired")
			servers.Exec(p.t, p.db, `INSERT INTO approval_movements SELECT 'ops', 'wallet.credit', 'o', 'JPY', 1, clock_timestamp() - n * interval '13 hours' FROM generate_series(1, 2) AS n`)
			return ""
		},
		changes: `
			- job 1 purchase old succeeded result={amount: 200, board_version: 1, positions: 2,1@200, purchase_id: purchase 1} attempts=1 expires_at=past`,
		counts: sweep.Counts{"batches": 3, "jobs_deleted": 1, "approval_bodies_deleted": 1, "approval_movements_deleted": 1},
	},
	"audit": {
		due: func(p *setup) string {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(3))
			servers.Exec(p.t, p.db, `UPDATE campaigns SET positions_sold = 2 WHERE id = $1`, id)
			return ""
		},
		changes: `
			+ violation counters campaign campaign 1 counts 2 sold, 0 reserved, 0 blocked of 6; its rows are 0, 0, 0 of 6 walk=campaigns id=campaign 1`,
		counts: sweep.Counts{"found": 1, "checked": 1, "passes": 7},
	},
	"expired-approvals": {
		due: func(p *setup) string {
			insertApproval(p, "-1 minute", "pending")
			insertApproval(p, "1 hour", "pending")
			return lockOf("approvals", insertApproval(p, "-1 minute", "pending"))
		},
		meets: `
			~ approval 1: pending → expired; → decided`,
		changes: `
			~ approval 3: pending → expired; → decided`,
		counts: sweep.Counts{"expired": 1},
	},
	"closing-months": {
		due: func(p *setup) string {
			servers.Exec(p.t, p.db, `INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency) VALUES ('2026-02-03', 'payment', 'old', '2026-02-03', 'receivable', 'unearned', 5, 'JPY')`)
			servers.NoError(p.t, postgres.InTx(p.t.Context(), p.db, func(tx pgx.Tx) error {
				_, err := books.Closing{Month: "2026-02", Zone: "Asia/Tokyo", By: "operator:ops", Rules: books.RulesOf(config.Books{EarnedAt: "result"})}.Close(p.t.Context(), tx)
				return err
			}))
			return ""
		},
		changes: `
			~ month 2026-02: → closed entries=1`,
		counts: sweep.Counts{"parts": 28, "months": 1},
	},
	"trail-seals": {
		due: func(p *setup) string {
			servers.NoError(p.t, trail.Write(trail.With(p.t.Context(), &trail.Actor{Client: "ops", Via: "cli", Operation: "migrate up", Target: "schema"}), p.db, nil, nil))
			return ""
		},
		counts: sweep.Counts{"seals": 1, "rows": 1},
	},
}

// insertApproval inserts a request that expires at a time from now.
func insertApproval(p *setup, expires, state string) uuid.UUID {
	return servers.Value[uuid.UUID](p.t, p.db, `INSERT INTO approvals (id, requester, operation, target, path, body, requested_by, deciding, preview, state, expires_at, decided_at)
		VALUES ($1, 'ops', 'wallet.credit', 't', '/v1/p', '{}', '{}', '{}', '[]', $3, clock_timestamp() + $2::interval, CASE WHEN $3 <> 'pending' THEN clock_timestamp() + $2::interval END) RETURNING id`,
		uuidv7.New(), expires, state)
}

func lockOf(table string, id uuid.UUID) string {
	return table + ` WHERE id = '` + id.String() + `'`
}

// A new sweep is tested by being there.
func TestEachSweepDoesOnceWhatIsDueAndLeavesLockedRowsForItsNextRun(t *testing.T) {
	t.Parallel()
	for _, s := range newSetup(t).sweeper.Sweeps {
		want, ok := each[s.Name]
		if !ok {
			t.Errorf("there is no case for %s", s.Name)
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			p := newSetup(t)
			p.view = postgres.NewGate(p.db, prometheus.NewRegistry()).Retry(sweep.RowWait)
			p.with(upkeep.Options{Draws: p.triggers})
			locked := want.due(p)
			changed := fixture.Watch(t, p.db)
			if locked != "" {
				unlock := fixture.LockRows(t, p.db, locked)
				_, _ = p.run(s.Name) // a row that is waited for in vain is an error
				changed(want.meets)
				unlock()
			}
			if got := p.sweep(s.Name); !maps.Equal(nonzero(got), want.counts) {
				t.Errorf("it counts %#v", nonzero(got))
			}
			changed(want.changes)
			if got := p.sweep(s.Name); !maps.Equal(nonzero(got), want.again) {
				t.Errorf("a further run counts %#v", nonzero(got))
			}
			changed("")
			tasks := make(map[job.Kind]int64)
			for _, kind := range []job.Kind{job.KindPurchase, job.KindCampaignCancellation, job.KindDraw, job.KindPayment, job.KindRefund, job.KindEvent} {
				if n := p.queued(kind); n > 0 {
					tasks[kind] = n
				}
			}
			if !maps.Equal(tasks, want.tasks) {
				t.Errorf("the tasks are %v", tasks)
			}
			if s.Name != "audit" {
				fixture.Sound(t, p.db)
			}
		})
	}
}

func nonzero(c sweep.Counts) sweep.Counts {
	maps.DeleteFunc(c, func(_ string, n int) bool { return n == 0 })
	return c
}

// authorized opens a wallet with an authorization that ends in some time.
func (p *setup) authorized(owner, in string) uuid.UUID {
	p.t.Helper()
	id := fixture.Wallet(p.t, p.db, owner, 100)
	err := postgres.InTx(p.t.Context(), p.db, func(tx pgx.Tx) error {
		unit, err := wallet.Open(p.t.Context(), tx, wallet.ReadSet{Wallets: []uuid.UUID{id}}, postgres.WaitForLocks)
		if err != nil {
			return err
		}
		if _, err := unit.Authorize(id, wallet.Movement{Amount: 30}, time.Hour); err != nil {
			return err
		}
		return unit.Write(p.t.Context(), tx)
	})
	servers.NoError(p.t, err)
	servers.Exec(p.t, p.db, `UPDATE authorizations SET created_at = created_at - interval '2 hours', expires_at = clock_timestamp() + $2::interval WHERE wallet_id = $1`, id, in)
	return id
}

// claimed is a campaign to be drawn that a worker has claimed, and whose claim was renewed some time ago.
func (p *setup) claimed(ago time.Duration) uuid.UUID {
	p.t.Helper()
	id := fixture.SellOut(p.t, p.db, fixture.Campaign(p.t, p.db, fixture.Draft(3))).CampaignID
	if _, ok, err := campaign.Claim(p.t.Context(), p.db, id, "a worker", time.Hour); err != nil || !ok {
		p.t.Fatal(ok, err)
	}
	servers.Exec(p.t, p.db, `UPDATE campaigns SET execution_locked_at = clock_timestamp() - $2 * interval '1 second' WHERE id = $1`, id, ago.Seconds())
	return id
}

// givenUp is a campaign that was sold out some time ago and whose draw job was given up.
func (p *setup) givenUp(ago time.Duration) uuid.UUID {
	p.t.Helper()
	ref := fixture.SellOut(p.t, p.db, fixture.Campaign(p.t, p.db, fixture.Draft(3)))
	if _, err := job.GiveUp(p.t.Context(), p.db, []uuid.UUID{ref.ID}, job.ProblemOf(errors.New("died"))); err != nil {
		p.t.Fatal(err)
	}
	servers.Exec(p.t, p.db, `UPDATE campaigns SET draw_started_at = clock_timestamp() - $2 * interval '1 second' WHERE id = $1`, ref.CampaignID, ago.Seconds())
	return ref.CampaignID
}

// Of several processes that sweep at once each finishes something else.
func TestSweepsThatRunAtOnceDoEverythingOnce(t *testing.T) {
	t.Parallel()
	const n = 60
	for name, c := range map[string]struct {
		count string
		make  func(p *setup)
	}{
		"expired-holds": {"expired", func(p *setup) {
			for range 3 {
				p.lapse(fixture.Campaign(p.t, p.db, fixture.Draft(12)), n/3)
			}
		}},
		"expired-reservations": {"expired", func(p *setup) {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(20))
			for i := range n {
				fixture.Reserve(p.t, p.db, id, "late-"+string(rune('a'+i)), 2, -time.Second)
			}
		}},
		"old-records": {"jobs_deleted", func(p *setup) { p.records(n, false) }},
		"stuck-draws": {"enqueued", func(p *setup) {
			for range n {
				p.givenUp(2 * time.Hour)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSetup(t)
			p.batchesOf(5, 40)
			c.make(p)
			var done [3]int
			var sweeps sync.WaitGroup
			for i := range done {
				sweeps.Go(func() { done[i] = p.sweep(name)[c.count] })
			}
			sweeps.Wait()
			last := p.sweep(name)[c.count] // they pass over what another has at the moment
			if done[0]+done[1]+done[2]+last != n || p.sweep(name)[c.count] != 0 {
				t.Errorf("of %d they have done %v, then %d", n, done, last)
			}
			fixture.Sound(t, p.db)
		})
	}
}

// For some sweeps a run is bounded: the next one goes on.
func TestARunOfASweepIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		count string
		make  func(p *setup)
	}{
		"expired-holds": {"expired", func(p *setup) { p.lapse(fixture.Campaign(p.t, p.db, fixture.Draft(12)), 10) }},
		"lost-jobs":     {"checked", func(p *setup) { p.accept(10, 1, true); p.age() }},
		"stale-locks": {"released", func(p *setup) {
			for range 10 {
				p.claimed(2 * time.Hour)
			}
		}},
		"stuck-draws": {"enqueued", func(p *setup) {
			for range 10 {
				p.givenUp(2 * time.Hour)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSetup(t)
			p.batchesOf(3, 2)
			c.make(p)
			for _, want := range []int{6, 4, 0} {
				if got := p.sweep(name); got[c.count] != want {
					t.Errorf("got %v, want %d", got, want)
				}
				fixture.Sound(t, p.db)
			}
		})
	}
}

// records makes n succeeded jobs, which are past their retention by an hour or, when
// fresh, an hour before its end. More than one has the same time.
func (p *setup) records(n int, fresh bool) {
	p.t.Helper()
	servers.Exec(p.t, p.db, `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, state, result, expires_at, accepted_at, finished_at)
		SELECT gen_random_uuid(), 'test', gen_random_uuid()::text, sha256('test'), 'wallet-credit', 'succeeded', '{}',
		       date_trunc('hour', clock_timestamp()) + CASE WHEN $2 THEN interval '2 hours' ELSE interval '-1 hour' END + (i / 7) * interval '1 ms',
		       clock_timestamp() - interval '2 days', clock_timestamp() - interval '2 days'
		FROM generate_series(1, $1) AS i`, n, fresh)
}

func (p *setup) count(query string, args ...any) int {
	p.t.Helper()
	return servers.Value[int](p.t, p.db, query, args...)
}

// jobsOver moves the end of the retention of all jobs into the past.
func (p *setup) jobsOver() {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s'`)
}
