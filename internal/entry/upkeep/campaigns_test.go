package upkeep_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// lapse makes n holds of two positions in a campaign and lets the time of all of them be over.
func (p *setup) lapse(id uuid.UUID, n int) (holds []inventory.Hold) {
	p.t.Helper()
	desk := fixture.Holds(p.t, p.db, nil, nil)
	for i := range n {
		holds = append(holds, fixture.Hold(p.t, desk, fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 0, 2)))
	}
	for _, h := range holds {
		fixture.EndHold(p.t, p.db, h)
	}
	return holds
}

// batchesOf lets a sweep touch no more than size rows at once, and do that no more than most times.
func (p *setup) batchesOf(size, most int) {
	p.settings.Scheduler.BatchSize, p.settings.Scheduler.MaxBatches = size, most
	p.with(upkeep.Options{})
}

// The broken campaign has more holds that are over than a batch takes, and they
// are over for longest.
func TestABrokenCampaignDoesNotHoldUpTheHoldsOfOthers(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	p.batchesOf(2, 40)
	broken, also, sound := fixture.Campaign(t, p.db, fixture.Draft(8)), fixture.Campaign(t, p.db, fixture.Draft(8)), fixture.Campaign(t, p.db, fixture.Draft(8))
	for _, id := range []uuid.UUID{broken, also} {
		for _, h := range p.lapse(id, 3) {
			fixture.MoveDeadline(t, p.db, h, -time.Hour)
		}
		servers.Exec(t, p.db, `UPDATE campaigns SET positions_reserved = 1 WHERE id = $1`, id) // fewer than are held
	}
	holds := p.lapse(sound, 5)
	for range 2 {
		report, err := p.run("expired-holds")
		if err == nil || report.Error == "" || report.Counts["failed"] != 2 {
			t.Errorf("%+v, %v", report, err)
		}
	}
	for _, h := range holds {
		if now := fixture.HoldNow(t, p.db, h.ID); now.EndedAt == nil {
			t.Errorf("of the sound campaign: %+v", now)
		}
	}
}

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
	servers.Exec(p.t, p.db, `UPDATE campaigns SET sale_ends_at = CASE WHEN $2 THEN '2026-01-01Z' ELSE clock_timestamp() + interval '1 hour' END WHERE id = $1`, id, ended)
}

// unsoldJobs returns the queued jobs that cancel a campaign.
func (p *setup) unsoldJobs(id uuid.UUID) (refs []job.Ref) {
	p.t.Helper()
	queued, err := postgres.Collect(p.t.Context(), p.db, pgx.RowTo[uuid.UUID],
		`SELECT id FROM jobs WHERE campaign_id = $1 AND kind = 'campaign-cancellation' AND state = 'queued' AND client = 'system'`, id)
	servers.NoError(p.t, err)
	for _, one := range queued {
		refs = append(refs, job.Ref{ID: one, CampaignID: id})
	}
	return refs
}

func (p *setup) cancelCampaign(ref job.Ref) job.Outcome {
	p.t.Helper()
	outcome, err := lifecycle.NewCanceller(p.db, lifecycle.Observer{}, servers.Logger(p.t)).Run(p.t.Context(), ref)
	servers.NoError(p.t, err)
	return outcome
}

// An end that was put off is another end, with a job of its own; so has one whose job was given up.
func TestASaleWhoseEndIsPutOffOrWhoseJobIsGivenUpGetsANewJob(t *testing.T) {
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
	second := p.unsoldJobs(id)[0]
	_, err := job.GiveUp(t.Context(), p.db, []uuid.UUID{second.ID}, job.ProblemOf(errors.New("died")))
	servers.NoError(t, err)
	if got, again := p.sweep("ended-sales"), p.unsoldJobs(id); got["enqueued"] != 1 || len(again) != 1 || again[0].ID == second.ID {
		t.Errorf("when it was given up: %v, %v", got, again)
	}
	if outcome := p.cancelCampaign(p.unsoldJobs(id)[0]); outcome.Problem != nil {
		t.Errorf("got %+v", outcome.Problem)
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

// stuck makes a campaign look as if it had been sold out two hours ago.
func (p *setup) stuck(id uuid.UUID) {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE campaigns SET draw_started_at = clock_timestamp() - interval '2 hours' WHERE id = $1`, id)
}

// A draw that waits for its round has its job, and holds no lock: neither sweep has
// anything to do with it, however long it takes.
func TestADrawThatWaitsForItsRoundIsNeitherStuckNorStale(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	chain := minutes(t)
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	id := fixture.CampaignOn(t, p.db, draft, &chain.Chain)
	ref := fixture.SellOut(t, p.db, id)
	drawer := drawing.NewDrawer(p.db, fixture.Key(t), p.settings.Draw, drawing.DrawerOptions{Beacon: chain}, servers.Logger(t))
	_, err := drawer.Run(t.Context(), ref)
	if _, waits := errors.AsType[*drawing.Snoozed](err); !waits {
		t.Fatalf("it does not wait: %v", err)
	}
	p.stuck(id)
	for _, sweep := range []string{"stale-locks", "stuck-draws"} {
		for what, n := range p.sweep(sweep) {
			if n != 0 {
				t.Errorf("%s: %d %s", sweep, n, what)
			}
		}
	}
	if _, err := job.GiveUp(t.Context(), p.db, []uuid.UUID{ref.ID}, job.Problem{Code: "internal-error"}); err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("stuck-draws"); got["found"] != 1 {
		t.Errorf("without its job it is stuck: %v", got)
	}
	p.wantTriggered(job.BySweep, 1)
}

// Sweeps at once: one whose statement began before the other had committed still finds the campaign. The clock
// of its statement waits for a table here, after the snapshot: a plan that is ready does not wait before it.
func TestASweepThatComesLateToAStuckDrawMakesNoSecondJob(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	settings, _ := servers.NewClock(t, p.settings)
	settings.Postgres.URL += "&plan_cache_mode=force_generic_plan"
	settings.Postgres.MaxConnections = 1
	late := *p
	late.sweeper = upkeep.New(settings, servers.Pool(t, settings), p.rdb, servers.Logger(t), upkeep.Options{})
	late.sweep("stuck-draws") // makes the plan
	p.givenUp(2 * time.Hour)
	tx, err := p.db.Begin(t.Context())
	servers.NoError(t, err)
	servers.Exec(t, tx, `LOCK TABLE clock.moves`)
	counts := make(chan sweep.Counts, 1)
	go func() { counts <- late.sweep("stuck-draws") }()
	servers.AwaitBlocked(t, p.db, 1)
	if got := p.sweep("stuck-draws"); got["enqueued"] != 1 {
		t.Errorf("the first: %v", got)
	}
	servers.NoError(t, tx.Rollback(t.Context()))
	if got := <-counts; got["enqueued"] != 0 {
		t.Errorf("the late one: %v", got)
	}
}
