package upkeep_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

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
	p.wantTriggered(job.BySweep, 1)
}
