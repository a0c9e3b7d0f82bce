//go:build failpoint

package upkeep_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/scheduler"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// halfMade is a base length whose positions take three steps.
const halfMade = 200

// Each kind of record: none goes while it is young, all go in one run when they are old, and none is left for the next.
func TestRecordsAreDeletedWhenTheyAreOldAndNotBefore(t *testing.T) {
	t.Parallel()
	for count, c := range map[string]struct {
		make func(p *setup)
		age  string
		want int
	}{
		"jobs_deleted": {func(p *setup) {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(4))
			fixture.Sell(p.t, p.db, id, 9)
			fixture.Accept(p.t, p.db, fixture.PurchaseRequest(p.t, id, "queued", 0, 1)) // it stays however old it is
		}, `UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s'`, 9},
		"refused_deleted": {func(p *setup) {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(4))
			fixture.Complete(p.t, p.db, fixture.PurchaseRequest(p.t, id, "a", 0, 5))
			for range 6 { // lists of two jobs
				fixture.Complete(p.t, p.db, fixture.PurchaseRequest(p.t, id, "b", 0, 6), fixture.PurchaseRequest(p.t, id, "c", 0, 6))
			}
		}, `UPDATE refused_jobs SET refused_at = refused_at - interval '1 hour'`, 12},
		"holds_deleted": {func(p *setup) {
			id := fixture.Campaign(p.t, p.db, fixture.Draft(8))
			p.lapse(id, 5)
			p.sweep("expired-holds")
			fixture.Hold(p.t, fixture.Holds(p.t, p.db, nil, nil), fixture.HoldAnyRequest(id, "active", 0, 1))
			p.lapse(id, 1)
		}, `UPDATE holds SET created_at = created_at - interval '24 hours 1 minute', ended_at = ended_at - interval '24 hours 1 minute'`, 5},
		"positions_deleted": {func(p *setup) {
			for _, steps := range []int{3, 2, 1} {
				p.cutOff(steps)
			}
			fixture.Campaign(p.t, p.db, fixture.Draft(4))
		}, `UPDATE campaigns SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'operator:test' WHERE state = 'active' OR id <> (SELECT max(id::text)::uuid FROM campaigns WHERE state = 'pending')`,
			shape.TriangleCount(halfMade) + 2*inventory.FillStep},
		"events_deleted": {func(p *setup) {
			e := cards.NewEvents(p.db, stripe.NewReader(false), servers.Logger(p.t), prometheus.NewRegistry())
			_, err := e.Store(p.t.Context(), []payprovider.Event{{ID: "evt_1", Type: "a.type.of.tomorrow", CreatedAt: time.Now()}})
			if err == nil {
				_, err = e.Process(p.t.Context())
			}
			if err == nil { // it is not handled: it stays
				_, err = e.Store(p.t.Context(), []payprovider.Event{{ID: "evt_2", Type: "payment_intent.succeeded", CreatedAt: time.Now()}})
			}
			servers.NoError(p.t, err)
		}, `UPDATE payment_events SET received_at = received_at - interval '31 days'`, 1},
	} {
		t.Run(count, func(t *testing.T) {
			t.Parallel()
			p := newSetup(t)
			p.settings.Retention.Refused = time.Hour
			if count != "positions_deleted" { // these go in steps of their own
				p.batchesOf(3, 2)
			}
			c.make(p)
			boundDeletes(t, p.db)
			if got := p.sweep("old-records"); got[count] != 0 {
				t.Errorf("young ones: %v", got)
			}
			servers.Exec(t, p.db, c.age)
			for _, want := range []int{c.want, 0} {
				if got := nonzero(p.sweep("old-records")); got[count] != want || len(got) > 2 || want > 6 && got["batches"] < 3 {
					t.Errorf("old ones: %v, want %d", got, want)
				}
			}
			fixture.Sound(t, p.db)
		})
	}
}

// boundDeletes makes the table of positions refuse a statement that deletes more than a step.
func boundDeletes(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	servers.Exec(t, db, `
		CREATE FUNCTION bound_deletes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM gone) > 10000 THEN RAISE EXCEPTION 'too many at once'; END IF; RETURN NULL; END $$;
		CREATE TRIGGER bound_deletes AFTER DELETE ON positions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION bound_deletes()`)
}

// cutOff stores a draft whose publication was cut off after some steps.
func (p *setup) cutOff(steps int) uuid.UUID {
	p.t.Helper()
	ctx, id, d := p.t.Context(), uuidv7.New(), fixture.Draft(halfMade)
	plan := inventory.Plan{Shape: d.Shape(), Prices: make([]money.Amount, len(d.Layers))}
	for i, l := range d.Layers {
		plan.Prices[i] = l.Price
	}
	for i := range steps + 1 {
		err := postgres.InTx(ctx, p.db, func(tx pgx.Tx) error {
			if i == 0 {
				return campaign.Create(ctx, tx, id, d)
			}
			_, err := inventory.FillNext(ctx, tx, id, plan)
			return err
		})
		servers.NoError(p.t, err)
	}
	return id
}

// A transaction that has locked the campaign is not waited for, and of two sweeps at once each deletes
// positions of its own: the note goes with the last of them, not before.
func TestSweepsTakeTurnsAtPositionsThatAreNotPublished(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := p.cutOff(2)
	servers.Exec(t, p.db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'operator:test'`)
	unlock := fixture.LockCampaign(t, p.db, id)
	if got := p.sweep("old-records"); got["positions_deleted"] != 0 {
		t.Errorf("while it is locked: %v", got)
	}
	unlock()
	var both [2]sweep.Report
	var runs sync.WaitGroup
	for i := range both {
		runs.Go(func() {
			var err error
			if both[i], err = p.run("old-records"); err != nil {
				t.Error(err)
			}
		})
	}
	runs.Wait()
	if n := both[0].Counts["positions_deleted"] + both[1].Counts["positions_deleted"]; n != 2*inventory.FillStep || p.count(`SELECT (SELECT count(*) FROM positions) + (SELECT count(*) FROM position_fills)`) != 0 {
		t.Errorf("%d were deleted, or some are left: %+v", n, both)
	}
}

// A listed job need not be one that may go: this does not depend on the list.
func TestOfListedJobsOnlyRefusedOnesGo(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	sold := fixture.Complete(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 5))[0]
	queued := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 1))[0]
	servers.Exec(t, p.db, `INSERT INTO refused_jobs (jobs) VALUES ($1)`, []uuid.UUID{sold.ID, queued.ID})
	p.exec(`UPDATE refused_jobs SET refused_at = refused_at - interval '1 year'`)
	if got := p.sweep("old-records"); got["refused_deleted"] != 0 || p.left(sold.ID, queued.ID) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestAJobWhoseRefundIsOpenStays(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	purchase, ref := fixture.Reserve(t, p.db, id, "a", 1, time.Hour)
	fixture.EndAs(t, p.db, purchase, payment.Expired)
	fixture.SettlePayments(t, p.db, ref)
	for _, c := range []struct {
		sql  string
		goes bool
	}{
		{`UPDATE purchases SET state = 'refunding', failure = NULL`, false}, // the payment came too late
		{`UPDATE refused_jobs SET refused_at = refused_at - interval '1 year'`, false},
		{`UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s'`, false},
		{`UPDATE purchases SET state = 'refunded'`, true},
	} {
		p.exec(c.sql)
		if got := p.sweep("old-records"); got["refused_deleted"] != 0 || (got["jobs_deleted"] == 1) != c.goes || (p.left(ref.ID) == 0) != c.goes {
			t.Errorf("after %s: %v", c.sql, got)
		}
	}
}

func (p *setup) left(ids ...uuid.UUID) int {
	p.t.Helper()
	return p.count(`SELECT count(*) FROM jobs WHERE id = ANY($1)`, ids)
}

// Kinds take turns: after a first round all that fail have failed.
func TestAKindOfOldRecordsThatFailsLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(10, 2)
	const old = 100
	p.records(old, false)
	servers.Exec(t, p.db, `ALTER TABLE refused_jobs RENAME TO refused_jobs_of_another_release`)
	servers.Exec(t, p.db, `ALTER TABLE webhook_events RENAME TO webhook_events_of_another_release`)
	report, err := p.run("old-records")
	if err == nil || !strings.Contains(report.Error, "job.deleteRefused") || !strings.Contains(report.Error, "webhook.DeleteEvents") {
		t.Errorf("it failed with %v: %+v", err, report)
	}
	if report.Counts["jobs_deleted"] != old {
		t.Errorf("the other kinds: %+v", report)
	}
}

// The scheduler lets other sweeps finish. This one has nothing to finish.
func TestOldRecordsEndsAtOnceAtAShutdownAndWhatIsDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(10, 2)
	p.records(100, false)
	ctx, shutdown := context.WithCancel(t.Context())
	batches := 0
	defer failpoint.Set("sweep.deleted", p.settings.Redis.Namespace, func() {
		if batches++; batches == 5 {
			shutdown()
		}
	})()
	s := scheduler.New(p.sweeper, nil, nil, p.settings.Scheduler, servers.Logger(t), prometheus.NewRegistry())
	for _, sweep := range p.sweeper.Sweeps {
		if sweep.Name != "old-records" {
			continue
		}
		report, err := s.RunOnce(ctx, sweep)
		deleted := report.Counts["jobs_deleted"]
		if err != nil || !report.More || deleted == 0 || deleted > 50 {
			t.Errorf("%+v, %v", report, err)
		}
		if left := p.count(`SELECT count(*) FROM jobs`); left > 100-deleted || left < 40 { // a batch that was cut off may be deleted or not
			t.Errorf("%d are left, %d were deleted", left, deleted)
		}
	}
	if got := p.sweep("old-records"); got["jobs_deleted"] < 40 || p.count(`SELECT count(*) FROM jobs`) != 0 {
		t.Errorf("the next run: %v", got)
	}
}

// The statistics of the server say how many rows of the table were read.
func TestTheSearchForOldRecordsReadsOnlyThese(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	const fresh = 20_000
	p.records(fresh, true)
	p.records(30, false)
	servers.Exec(t, p.db, `VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs`)
	pool := servers.Pool(t, p.settings)
	p.sweeper = upkeep.New(p.settings, pool, p.rdb, servers.Logger(t), upkeep.Options{})
	const read = `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'jobs'`
	var before int
	servers.Eventually(t, "the numbers before are known", func() bool {
		was := before
		before = p.count(read)
		return was == before && p.count(`SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'jobs'`) == fresh+30
	})
	if got := p.sweep("old-records"); got["jobs_deleted"] != 30 {
		t.Errorf("got %v", got)
	}
	pool.Close() // its sessions write their numbers when they end
	servers.Eventually(t, "the numbers are known", func() bool {
		return p.count(`SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'jobs'`) == 30
	})
	if n := p.count(read) - before; n > fresh/10 {
		t.Errorf("it read %d rows to delete 30", n)
	}
}
