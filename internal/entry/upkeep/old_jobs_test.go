package upkeep_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// jobsOver moves the end of the retention of all jobs into the past.
func (p *setup) jobsOver() {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s'`)
}

// refusedLongAgo moves all refusals back, by as long as refused jobs are kept.
func (p *setup) refusedLongAgo() {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE refused_jobs SET refused_at = refused_at - $1 * interval '1 second'`, p.settings.Retention.Refused.Seconds())
}

func (p *setup) left(ids ...uuid.UUID) int {
	p.t.Helper()
	return p.count(`SELECT count(*) FROM jobs WHERE id = ANY($1)`, ids)
}

func TestOldJobsGo(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	fixture.Sell(t, p.db, id, 5)
	if got := p.sweep("old-records"); got["jobs_deleted"] != 0 {
		t.Errorf("young jobs: %v", got)
	}
	p.jobsOver()
	if got := p.sweep("old-records"); got["jobs_deleted"] != 5 {
		t.Errorf("old jobs: %v", got)
	}
	if got := p.sweep("lost-jobs"); got["jobs_reissued"] != 0 { // messages of deleted jobs
		t.Errorf("got %v", got)
	}
	fixture.Sound(t, p.db)
}

func TestRefusedPurchasesGoBeforeTheOthersAndNotTooSoon(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(3, 2)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	var refused []uuid.UUID
	sold := fixture.Finalize(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 5))[0]
	for range 6 { // lists of two jobs, two lists in a batch
		for _, j := range fixture.Finalize(t, p.db, fixture.PurchaseRequest(t, id, "b", 0, 6), fixture.PurchaseRequest(t, id, "c", 0, 6)) {
			if j.State != job.Failed {
				t.Fatalf("got %+v", j)
			}
			refused = append(refused, j.ID)
		}
	}
	if got := p.sweep("old-records"); got["refused_deleted"] != 0 || p.left(refused...) != len(refused) {
		t.Errorf("young ones: %v", got)
	}
	p.refusedLongAgo()
	if got := p.sweep("old-records"); got["refused_deleted"] != len(refused) || got["jobs_deleted"] != 0 || got["batches"] < 3 {
		t.Errorf("old ones: %v", got)
	}
	if p.left(refused...) != 0 || p.left(sold.ID) != 1 || p.count(`SELECT count(*) FROM refused_jobs`) != 0 {
		t.Error("a refused job is left, or a sold one is gone")
	}
	fixture.Sound(t, p.db)
}

// A listed job need not be one that may go: this does not depend on the list.
func TestOfListedJobsOnlyRefusedOnesGo(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	sold := fixture.Finalize(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 5))[0]
	queued := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 1))[0]
	servers.Exec(t, p.db, `INSERT INTO refused_jobs (jobs) VALUES ($1)`, []uuid.UUID{sold.ID, queued.ID})
	p.refusedLongAgo()
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
	fixture.Conclude(t, p.db, ref)
	refund := func(state string) {
		servers.Exec(t, p.db, `UPDATE purchases SET state = $2, failure = NULL WHERE id = $1`, purchase, state)
	}
	refund("refunding") // the payment came too late
	p.refusedLongAgo()
	if got := p.sweep("old-records"); got["refused_deleted"] != 0 || p.left(ref.ID) != 1 {
		t.Errorf("refused long ago: %v", got)
	}
	p.jobsOver()
	if got := p.sweep("old-records"); got["jobs_deleted"] != 0 || p.left(ref.ID) != 1 {
		t.Errorf("past its retention: %v", got)
	}
	refund("refunded")
	if got := p.sweep("old-records"); got["jobs_deleted"] != 1 || p.left(ref.ID) != 0 {
		t.Errorf("refunded: %v", got)
	}
}

// records makes n succeeded jobs, which are past their retention by an hour or, when
// fresh, an hour before its end. More than one has the same time.
func (p *setup) records(n int, fresh bool) {
	p.t.Helper()
	_, err := p.db.Exec(p.t.Context(), `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, state, result, expires_at, accepted_at, finished_at)
		SELECT gen_random_uuid(), 'test', gen_random_uuid()::text, sha256('test'), 'wallet-credit', 'succeeded', '{}',
		       date_trunc('hour', clock_timestamp()) + CASE WHEN $2 THEN interval '2 hours' ELSE interval '-1 hour' END + (i / 7) * interval '1 ms',
		       clock_timestamp() - interval '2 days', clock_timestamp() - interval '2 days'
		FROM generate_series(1, $1) AS i`, n, fresh)
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *setup) count(query string, args ...any) int {
	p.t.Helper()
	return servers.Value[int](p.t, p.db, query, args...)
}
