package upkeep_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

func (p *setup) execution(id uuid.UUID) (lock *uuid.UUID, version int64) {
	p.t.Helper()
	err := p.db.QueryRow(p.t.Context(), `SELECT execution_lock_id, execution_version FROM campaigns WHERE id = $1`, id).Scan(&lock, &version)
	if err != nil {
		p.t.Fatal(err)
	}
	return lock, version
}

// stuck makes a campaign look as if it had been sold out two hours ago.
func (p *setup) stuck(id uuid.UUID) {
	p.t.Helper()
	servers.Exec(p.t, p.db, `UPDATE campaigns SET draw_started_at = clock_timestamp() - interval '2 hours' WHERE id = $1`, id)
}

func TestAStaleLockIsReleasedAndAFreshOneIsNot(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	stale, fresh := fixture.Campaign(t, p.db, fixture.Draft(3)), fixture.Campaign(t, p.db, fixture.Draft(3))
	for _, id := range []uuid.UUID{stale, fresh} {
		fixture.SellOut(t, p.db, id)
		if _, ok, err := campaign.Claim(t.Context(), p.db, id, "a worker", p.settings.Draw.Lease); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	_, err := p.db.Exec(t.Context(), `UPDATE campaigns SET execution_locked_at = clock_timestamp() - interval '2 hours' WHERE id = $1`, stale)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("stale-locks"); got["released"] != 1 {
		t.Errorf("got %v", got)
	}
	if lock, version := p.execution(stale); lock != nil || version != 2 {
		t.Errorf("the stale lock: %v, version %d", lock, version)
	}
	if lock, version := p.execution(fresh); lock == nil || version != 1 {
		t.Errorf("the fresh lock: %v, version %d", lock, version)
	}
}

func TestADrawWhoseJobWasGivenUpGetsANewOne(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(3))
	ref := fixture.SellOut(t, p.db, id)
	p.stuck(id)
	if got := p.sweep("stuck-draws"); got["found"] != 0 {
		t.Errorf("its job is on its way: %v", got)
	}
	if _, err := job.GiveUp(t.Context(), p.db, []uuid.UUID{ref.ID}, job.Problem{Code: "internal-error"}); err != nil {
		t.Fatal(err)
	}
	for run, want := range []int{1, 0} { // the second run finds the new job on its way
		if got := p.sweep("stuck-draws"); got["found"] != want || got["enqueued"] != want {
			t.Errorf("run %d: %v", run, got)
		}
	}
	p.wantTriggered(job.BySweep, 1)
	var made job.Ref
	err := p.db.QueryRow(t.Context(), `SELECT id, campaign_id FROM jobs WHERE state = 'queued' AND kind = 'draw'`).Scan(&made.ID, &made.CampaignID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := drawing.NewDrawer(p.db, fixture.Key(t), p.settings.Draw, drawing.DrawerOptions{}, servers.Logger(t)).Run(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	p.stuck(id)
	if got := p.sweep("stuck-draws"); got["found"] != 0 {
		t.Errorf("a completed campaign: %v", got)
	}
	fixture.Sound(t, p.db)
}

func TestADrawThatAWorkerIsAtIsNotStuck(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(3))
	ref := fixture.SellOut(t, p.db, id)
	if _, err := job.GiveUp(t.Context(), p.db, []uuid.UUID{ref.ID}, job.Problem{Code: "internal-error"}); err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("stuck-draws"); got["found"] != 0 {
		t.Errorf("sold out a moment ago: %v", got)
	}
	p.stuck(id)
	if _, ok, err := campaign.Claim(t.Context(), p.db, id, "a worker", time.Minute); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := p.sweep("stuck-draws"); got["found"] != 0 {
		t.Errorf("with a lock on it: %v", got)
	}
}

// A draw that waits for its round has its job, and holds no lock: neither sweep has
// anything to do with it, however long it takes.
func TestADrawThatWaitsForItsRoundIsNeitherStuckNorStale(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now().Add(-time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	id := fixture.CampaignOn(t, p.db, draft, &chain.Chain)
	ref := fixture.SellOut(t, p.db, id)
	drawer := drawing.NewDrawer(p.db, fixture.Key(t), p.settings.Draw, drawing.DrawerOptions{Beacon: chain}, servers.Logger(t))
	_, err = drawer.Run(t.Context(), ref)
	if _, waits := errors.AsType[*drawing.Waiting](err); !waits {
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
}
