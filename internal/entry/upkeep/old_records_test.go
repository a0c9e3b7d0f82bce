//go:build failpoint

package upkeep_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/scheduler"
	"triprize/internal/entry/upkeep"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/servers"
)

// The batches are much smaller than what is to be deleted, and than max_batches of them.
func TestOneRunDeletesAllThatIsOldInBatchesAndNothingElse(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(10, 2)
	const old, fresh, open = 503, 40, 3
	p.records(old, false)
	p.records(fresh, true)
	p.accept(open, open, false)
	servers.Exec(t, p.db, `UPDATE jobs SET expires_at = clock_timestamp() - interval '2 days' WHERE state = 'queued'`)
	report, err := p.run("old-records")
	if err != nil || report.More || report.Counts["jobs_deleted"] != old || report.Counts["batches"] < old/10 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := p.count(`SELECT count(*) FROM jobs`); n != fresh+open {
		t.Errorf("%d jobs are left", n)
	}
}

func TestTwoRunsAtOnceDeleteEachRecordOnce(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(10, 2)
	const old = 1000
	p.records(old, false)
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
	if n := both[0].Counts["jobs_deleted"] + both[1].Counts["jobs_deleted"]; n != old {
		t.Errorf("%d of %d were deleted: %+v", n, old, both)
	}
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
