package recovery_test

import (
	"testing"

	"github.com/google/uuid"

	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// jobsOver moves the end of the retention of all jobs into the past.
func (p *setup) jobsOver() {
	p.t.Helper()
	if _, err := p.db.Exec(p.t.Context(), `UPDATE jobs SET expires_at = clock_timestamp() - interval '1 s'`); err != nil {
		p.t.Fatal(err)
	}
}

// refusedLongAgo moves all refusals back, by as long as refused jobs are kept.
func (p *setup) refusedLongAgo() {
	p.t.Helper()
	if _, err := p.db.Exec(p.t.Context(), `UPDATE refused_jobs SET refused_at = refused_at - $1 * interval '1 second'`, p.settings.Retention.Refused.Seconds()); err != nil {
		p.t.Fatal(err)
	}
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
	sold := fixture.Settle(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 5))[0]
	for range 6 { // lists of two jobs, two lists in a batch
		for _, j := range fixture.Settle(t, p.db, fixture.PurchaseRequest(t, id, "b", 0, 6), fixture.PurchaseRequest(t, id, "c", 0, 6)) {
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
	sold := fixture.Settle(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 5))[0]
	queued := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 1))[0]
	if _, err := p.db.Exec(t.Context(), `INSERT INTO refused_jobs (jobs) VALUES ($1)`, []uuid.UUID{sold.ID, queued.ID}); err != nil {
		t.Fatal(err)
	}
	p.refusedLongAgo()
	if got := p.sweep("old-records"); got["refused_deleted"] != 0 || p.left(sold.ID, queued.ID) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestAJobWhoseRefundIsOpenStays(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	purchase, ref := fixture.Reserve(t, p.db, id, "a", 1, -1)
	if got := p.sweep("expired-reservations"); got["expired"] != 1 {
		t.Fatalf("got %v", got)
	}
	refund := func(state string) {
		if _, err := p.db.Exec(t.Context(), `UPDATE purchases SET state = $2, failure = NULL WHERE id = $1`, purchase, state); err != nil {
			t.Fatal(err)
		}
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
