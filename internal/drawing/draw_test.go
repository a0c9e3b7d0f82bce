package drawing_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var settings = config.Draw{Lease: time.Hour, Timeout: servers.Patience}

func newDrawer(t *testing.T, db *pgxpool.Pool) *drawing.Drawer {
	return newDrawerWith(t, db, settings)
}

func newDrawerWith(t *testing.T, db *pgxpool.Pool, settings config.Draw) *drawing.Drawer {
	return drawing.NewDrawer(db, fixture.Key(t), settings, drawing.DrawerOptions{Beacon: &relays{db: db}}, servers.Logger(t))
}

// execution returns the lock columns of a campaign.
func execution(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (lock *uuid.UUID, version int64) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT execution_lock_id, execution_version FROM campaigns WHERE id = $1`, id).Scan(&lock, &version)
	if err != nil {
		t.Fatal(err)
	}
	return lock, version
}

func state(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.State {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return c.State
}

// ask accepts a draw job as an operator would.
func ask(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
	t.Helper()
	jobID := uuidv7.New()
	return fixture.Accept(t, db, job.Request{ID: jobID, Client: "ops", Key: jobID.String(), Kind: job.KindDraw, CampaignID: id, Keep: time.Hour})[0]
}

// silence makes the holder of the lock look silent for longer than the lease.
func silence(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE campaigns SET execution_locked_at = clock_timestamp() - interval '2 hours' WHERE id = $1`, id)
}

func TestASoldOutCampaignIsDrawnAndTheLockReleased(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft := fixture.Draft(4)
	draft.Layers[2].Label = "Row C"
	id := fixture.Campaign(t, db, draft)
	ref := fixture.SellOut(t, db, id)
	outcome, err := newDrawer(t, db).Run(t.Context(), ref)
	if err != nil || outcome.Problem != nil {
		t.Fatalf("%+v, %v", outcome, err)
	}
	if s := state(t, db, id); s != campaign.Completed {
		t.Errorf("the campaign is %s", s)
	}
	if lock, version := execution(t, db, id); lock != nil || version != 1 {
		t.Errorf("lock %v, version %d", lock, version)
	}
	var result drawing.Result
	if err := json.Unmarshal(fixture.Job(t, db, ref.ID).Result, &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Winners) != 4 || result.Trust != fairdraw.TrustOperator || result.Secret == "" {
		t.Errorf("the result is %+v", result)
	}
	for _, w := range result.Winners {
		if place := draft.Shape().Place(shape.Position{Layer: w.Layer, Column: *w.Column}); *w.Number != place.Number || *w.Label != place.Label {
			t.Errorf("position %+v is called %d %q", place, *w.Number, *w.Label)
		}
	}
	fixture.Sound(t, db) // redoes the draw from its commitment
}

func TestALateJobLeavesACompletedCampaignAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	first := fixture.SellOut(t, db, id)
	late := ask(t, db, id)
	drawer := newDrawer(t, db)
	if _, err := drawer.Run(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := drawer.Run(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	a, b := fixture.Job(t, db, first.ID), fixture.Job(t, db, late.ID)
	if b.State != job.Succeeded || string(a.Result) != string(b.Result) {
		t.Errorf("the late job got another result:\n%s\n%s", a.Result, b.Result)
	}
	if _, version := execution(t, db, id); version != 1 {
		t.Errorf("version %d: the late job claimed", version)
	}
	if _, err := drawer.Run(t.Context(), first); !errors.Is(err, job.ErrFinal) {
		t.Errorf("a second delivery of the first job: %v", err)
	}
	fixture.Sound(t, db)
}

func TestACampaignThatIsNotSoldOutIsNotDrawn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	active := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Sell(t, db, active, 8)
	missing := uuid.New()
	for id, want := range map[uuid.UUID]fault.Code{active: fault.NotSoldOut, missing: fault.NotFound} {
		ref := ask(t, db, id)
		if _, err := newDrawer(t, db).Run(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if j := fixture.Job(t, db, ref.ID); j.State != job.Failed || j.Problem.Code != want {
			t.Errorf("got %s, %+v, want %s", j.State, j.Problem, want)
		}
	}
	if s := state(t, db, active); s != campaign.Active {
		t.Errorf("the campaign is %s", s)
	}
}

// A worker has few slots for draws: one whose campaign is locked must not keep its slot.
func TestADrawDoesNotWaitLongForItsCampaign(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t)) // no wait ends by itself but the draw's
	db := servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	ref := fixture.SellOut(t, db, id)
	unlock := fixture.LockCampaign(t, db, id)
	gate := postgres.NewGate(db, prometheus.NewRegistry())
	drawer := drawing.NewDrawer(gate.Retry(drawing.RowWait), fixture.Key(t), settings.Draw, drawing.DrawerOptions{}, servers.Logger(t)) // as a worker has it
	if _, err := drawer.Run(t.Context(), ref); !postgres.IsLockTimeout(err) {
		t.Errorf("got %v", err)
	}
	unlock()
	if _, err := drawer.Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Succeeded {
		t.Errorf("it is %s, %+v", j.State, j.Problem)
	}
	fixture.Sound(t, db)
}

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
