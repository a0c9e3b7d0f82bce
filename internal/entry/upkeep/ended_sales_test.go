package upkeep_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// sale makes a campaign with a policy whose sale ended a moment ago, or ends in an hour.
func (p *setup) sale(policy string, ended bool) uuid.UUID {
	p.t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Unsold = policy
	id := fixture.Campaign(p.t, p.db, draft)
	p.endSale(id, ended)
	return id
}

func (p *setup) endSale(id uuid.UUID, ended bool) {
	p.t.Helper()
	_, err := p.db.Exec(p.t.Context(), `UPDATE campaigns SET sale_ends_at = CASE WHEN $2 THEN '2026-01-01Z' ELSE clock_timestamp() + interval '1 hour' END WHERE id = $1`, id, ended)
	if err != nil {
		p.t.Fatal(err)
	}
}

// unsoldJobs returns the queued jobs that cancel a campaign.
func (p *setup) unsoldJobs(id uuid.UUID) (refs []job.Ref) {
	p.t.Helper()
	rows, err := p.db.Query(p.t.Context(), `SELECT id FROM jobs WHERE campaign_id = $1 AND kind = 'campaign-cancellation' AND state = 'queued' AND client = 'system'`, id)
	if err != nil {
		p.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		ref := job.Ref{CampaignID: id}
		if err := rows.Scan(&ref.ID); err != nil {
			p.t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	return refs
}

func (p *setup) cancelCampaign(ref job.Ref) job.Outcome {
	p.t.Helper()
	outcome, err := lifecycle.NewCanceller(p.db, lifecycle.Observer{}, servers.Logger(p.t)).Run(p.t.Context(), ref)
	if err != nil {
		p.t.Fatal(err)
	}
	return outcome
}

// An end that was put off is another end, with a job of its own.
func TestASaleWhoseEndIsPutOffIsCancelledAtItsNewEnd(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := p.sale(campaign.UnsoldCancel, true)
	p.sweep("ended-sales")
	first := p.unsoldJobs(id)[0]
	p.endSale(id, false)
	if outcome := p.cancelCampaign(first); outcome.Problem == nil || outcome.Problem.Code != fault.StateConflict {
		t.Errorf("got %+v", outcome)
	}
	if got := p.sweep("ended-sales"); got["found"] != 0 {
		t.Errorf("before the new end: %v", got)
	}
	p.endSale(id, true)
	if got := p.sweep("ended-sales"); got["enqueued"] != 1 {
		t.Errorf("at the new end: %v", got)
	}
	if outcome := p.cancelCampaign(p.unsoldJobs(id)[0]); outcome.Problem != nil {
		t.Errorf("got %+v", outcome.Problem)
	}
}

func TestASaleWhoseJobWasGivenUpGetsANewOne(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := p.sale(campaign.UnsoldCancel, true)
	p.sweep("ended-sales")
	first := p.unsoldJobs(id)[0]
	if _, err := job.GiveUp(t.Context(), p.db, []uuid.UUID{first.ID}, job.ProblemOf(errors.New("died"))); err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("ended-sales"); got["enqueued"] != 1 {
		t.Errorf("got %v", got)
	}
	if got := p.unsoldJobs(id); len(got) != 1 || got[0].ID == first.ID {
		t.Errorf("got %v", got)
	}
}

func TestASaleThatIsDrawnAtItsEndIsDrawnOnceByTheSweep(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	settings, clock := servers.NewClock(t, p.settings)
	p.db = servers.Pool(t, settings)
	p.sweeper = upkeep.New(settings, p.db, p.rdb, servers.Logger(t), upkeep.Options{Draws: p.triggers})
	const long = 24 * time.Hour
	empty, some, waits := fixture.Campaign(t, p.db, fixture.DrawnAtEnd(3, long)), fixture.Campaign(t, p.db, fixture.DrawnAtEnd(3, long)), fixture.Campaign(t, p.db, fixture.DrawnAtEnd(3, long))
	later := fixture.Campaign(t, p.db, fixture.DrawnAtEnd(3, 10*long))
	old := p.sale(campaign.UnsoldStay, true) // an earlier release has published it: the rules say nothing of an end
	servers.Exec(t, p.db, `UPDATE campaigns SET policies = policies::jsonb || '{"unsold": "draw"}' WHERE id = $1`, old)
	fixture.Sell(t, p.db, some, 2)
	fixture.Reserve(t, p.db, waits, "a", 1, 3*long)
	if got := p.sweep("ended-sales"); got["draws_due"] != 0 {
		t.Errorf("before their end: %v", got)
	}
	clock.MoveOn(long)
	if got := p.sweep("ended-sales"); got["draws_due"] != 3 || got["draws_begun"] != 2 || got["found"] != 0 {
		t.Errorf("at their end: %v", got)
	}
	if got := p.sweep("ended-sales"); got["draws_due"] != 1 || got["draws_begun"] != 0 {
		t.Errorf("again: %v", got)
	}
	p.wantTriggered(job.BySaleEnd, 2)
	for id, want := range map[uuid.UUID]campaign.State{empty: campaign.Drawing, some: campaign.Drawing, waits: campaign.Active, later: campaign.Active, old: campaign.Active} {
		if c, err := campaign.Get(t.Context(), p.db, id); err != nil || c.State != want {
			t.Errorf("one is %s, wanted %s; %v", c.State, want, err)
		}
	}
	fixture.Sound(t, p.db)
}
