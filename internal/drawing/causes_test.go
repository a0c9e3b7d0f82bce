package drawing_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// An attempt that does not come to its end is counted under what was in its way, and under nothing else. It leaves
// no freeze and no lock behind.
func TestAnAttemptIsCountedUnderTheCauseOfItsFailure(t *testing.T) {
	t.Parallel()
	type given struct {
		db     *pgxpool.Pool
		key    keyring.Keyring
		relays *relays
	}
	plain := func(t *testing.T, g given) uuid.UUID { return fixture.Campaign(t, g.db, fixture.Draft(3)) }
	for name, c := range map[string]struct {
		outcome, cause string
		campaign       func(t *testing.T, g given) uuid.UUID
		breaks         func(t *testing.T, g *given, id uuid.UUID)
	}{
		"a key that does not open the secret": {"failed", "key", plain, func(_ *testing.T, g *given, _ uuid.UUID) {
			g.key, _ = keyring.Parse(keyring.NewKey(), "")
		}},
		"a statement that Postgres refuses": {"failed", "postgres", plain, func(t *testing.T, g *given, _ uuid.UUID) {
			servers.Exec(t, g.db, `ALTER TABLE freezes ADD CHECK (false) NOT VALID`)
		}},
		"rows that contradict each other": {"failed", "internal", plain, func(t *testing.T, g *given, id uuid.UUID) {
			tx, err := g.db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			servers.Exec(t, tx, `SET LOCAL session_replication_role = replica`)
			servers.Exec(t, tx, `UPDATE campaigns SET positions_sold = positions_sold - 1 WHERE id = $1`, id)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		"relays that lie": {"waiting", "beacon", func(t *testing.T, g given) uuid.UUID { return withBeacon(t, g.db, newSigner(t)) }, func(_ *testing.T, g *given, _ uuid.UUID) {
			g.relays.latest = func() (beacon.Round, error) { return beacon.Round{Number: 1}, nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			g := given{db: db, key: fixture.Key(t), relays: &relays{db: db}}
			id := c.campaign(t, g)
			ref := fixture.SellOut(t, db, id)
			c.breaks(t, &g, id)
			registry := prometheus.NewRegistry()
			drawer := drawing.NewDrawer(db, g.key, settings, drawing.DrawerOptions{Beacon: g.relays, Registry: registry}, servers.Logger(t))
			if _, err := drawer.Run(t.Context(), ref); err == nil {
				t.Fatal("it was drawn")
			}
			if lock, _ := execution(t, db, id); lock != nil || isFrozen(t, db, id) || state(t, db, id) != campaign.Drawing || fixture.Job(t, db, ref.ID).State != job.Queued {
				t.Errorf("lock %v, or the failure left something behind", lock)
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				for _, m := range family.GetMetric() {
					if family.GetName() != "triprize_draw_attempts_total" {
						continue
					}
					labels := make(map[string]string)
					for _, l := range m.GetLabel() {
						labels[l.GetName()] = l.GetValue()
					}
					want := 0.0
					if labels["outcome"] == c.outcome && labels["cause"] == c.cause {
						want = 1
					}
					if got := m.GetCounter().GetValue(); got != want {
						t.Errorf("%v: %g, want %g", labels, got, want)
					}
				}
			}
		})
	}
}
