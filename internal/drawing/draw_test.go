package drawing_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestASoldOutCampaignIsDrawnAndTheLockReleased(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft := fixture.Draft(4)
	draft.Layers[2].Label = "Row C"
	id := fixture.Campaign(t, db, draft)
	ref := fixture.SellOut(t, db, id)
	drawn(t, newDrawer(t, db), ref)
	if s := state(t, db, id); s != campaign.Completed {
		t.Errorf("the campaign is %s", s)
	}
	if lock, version := execution(t, db, id); lock != nil || version != 1 {
		t.Errorf("lock %v, version %d", lock, version)
	}
	var result drawing.Result
	servers.NoError(t, json.Unmarshal(fixture.Job(t, db, ref.ID).Result, &result))
	if len(result.Winners) != 4 || result.Trust != fairdraw.TrustOperator || result.Secret == "" {
		t.Errorf("the result is %+v", result)
	}
	for _, w := range result.Winners {
		if place := draft.Shape().Seat(shape.Position{Layer: w.Layer, Column: *w.Column}); *w.Number != place.Number || *w.Label != place.Label {
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
	drawn(t, drawer, first)
	drawn(t, drawer, late)
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
		_, err := newDrawer(t, db).Run(t.Context(), ref)
		servers.NoError(t, err)
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
	drawn(t, drawer, ref)
	fixture.Sound(t, db)
}

// An attempt that does not come to its end is counted under what was in its way, and under nothing else. It leaves
// no freeze and no lock behind.
func TestAnAttemptIsCountedUnderTheCauseOfItsFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome, cause string
		breaks         string
		beacon         bool // whose relays lie
		key            keyring.Keyring
	}{
		"a key that does not open the secret": {"failed", "key", "", false, ring(t, keyring.NewKey(), "")},
		"a statement that Postgres refuses":   {"failed", "postgres", `ALTER TABLE freezes ADD CHECK (false) NOT VALID`, false, fixture.Key(t)},
		"rows that contradict each other":     {"failed", "internal", `BEGIN; SET LOCAL session_replication_role = replica; UPDATE campaigns SET positions_sold = positions_sold - 1; COMMIT`, false, fixture.Key(t)},
		"relays that lie":                     {"waiting", "beacon", "", true, fixture.Key(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			var ref job.Ref
			if c.beacon {
				ref = withBeacon(t, db, newChain(t))
			} else {
				ref = fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
			}
			servers.Exec(t, db, c.breaks)
			registry := prometheus.NewRegistry()
			lying := &relays{latest: func() (beacon.Round, error) { return beacon.Round{Number: 1}, nil }}
			drawer := drawing.NewDrawer(db, c.key, settings, drawing.DrawerOptions{Beacon: lying, Registry: registry}, servers.Logger(t))
			if _, err := drawer.Run(t.Context(), ref); err == nil {
				t.Fatal("it was drawn")
			}
			id := ref.CampaignID
			if lock, _ := execution(t, db, id); lock != nil || isFrozen(t, db, id) || state(t, db, id) != campaign.Drawing || fixture.Job(t, db, ref.ID).State != job.Queued {
				t.Errorf("lock %v, or the failure left something behind", lock)
			}
			const attempts = "triprize_draw_attempts_total"
			all, failed, because := servers.Counted(t, registry, attempts, ""), servers.Counted(t, registry, attempts, c.outcome), servers.Counted(t, registry, attempts, c.cause)
			if all != 1 || failed != 1 || because != 1 {
				t.Errorf("%g attempts are counted, %g as %s and %g under %s", all, failed, c.outcome, because, c.cause)
			}
		})
	}
}
