package upkeep_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
)

// halfMade is a base length whose positions take three steps.
const halfMade = 200

// cutOff stores a draft whose publication was cut off after some steps.
func (p *setup) cutOff(steps int) uuid.UUID {
	p.t.Helper()
	ctx, id, d := p.t.Context(), uuidv7.New(), fixture.Draft(halfMade)
	plan := inventory.Plan{Shape: d.Shape(), Prices: make([]money.Amount, len(d.Layers))}
	for i, l := range d.Layers {
		plan.Prices[i] = l.Price
	}
	filler := inventory.NewFiller(id)
	for i := range steps + 1 {
		err := postgres.InTx(ctx, p.db, func(tx pgx.Tx) error {
			if i == 0 {
				return campaign.Create(ctx, tx, id, d)
			}
			_, err := filler.Step(ctx, tx, plan)
			return err
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return id
}

func (p *setup) cancel(id uuid.UUID) {
	p.t.Helper()
	err := postgres.InTx(p.t.Context(), p.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		campaign.QueueCancel(&b, id, "operator:test", "")
		return tx.SendBatch(p.t.Context(), &b).Close()
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *setup) made(id uuid.UUID) (positions int) {
	p.t.Helper()
	return p.count(`SELECT count(*) FROM positions WHERE campaign_id = $1`, id)
}

func (p *setup) notes(id uuid.UUID) (notes int) {
	p.t.Helper()
	return p.count(`SELECT count(*) FROM position_fills WHERE campaign_id = $1`, id)
}

// No statement deletes more than a step: a trigger of this test refuses that.
func TestPositionsOfACampaignThatWasCancelledBeforeItsPublicationAreDeletedInSteps(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	whole, two, pending := p.cutOff(3), p.cutOff(2), p.cutOff(1)
	sold := fixture.Campaign(t, p.db, fixture.Draft(4))
	_, err := p.db.Exec(t.Context(), `
		CREATE FUNCTION bound_deletes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM gone) > 10000 THEN RAISE EXCEPTION 'too many at once'; END IF; RETURN NULL; END $$;
		CREATE TRIGGER bound_deletes AFTER DELETE ON positions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION bound_deletes()`)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.sweep("old-records"); got["positions_deleted"] != 0 {
		t.Errorf("of pending campaigns: %v", got)
	}
	p.cancel(whole)
	p.cancel(two)
	p.cancel(sold)
	want := shape.TriangleCount(halfMade) + 2*inventory.FillStep
	if got := p.sweep("old-records"); got["positions_deleted"] != want || got["batches"] != 5 {
		t.Errorf("got %v, want %d in 5 batches", got, want)
	}
	for name, c := range map[string]struct {
		id              uuid.UUID
		positions, note int
	}{"all was made": {whole, 0, 0}, "two steps": {two, 0, 0}, "pending": {pending, inventory.FillStep, 1}, "published": {sold, 10, 0}} {
		if n, notes := p.made(c.id), p.notes(c.id); n != c.positions || notes != c.note {
			t.Errorf("%s: %d positions and %d notes are left", name, n, notes)
		}
	}
	if got := p.sweep("old-records"); got["positions_deleted"] != 0 {
		t.Errorf("again: %v", got)
	}
	fixture.Sound(t, p.db)
}

// A transaction that has locked the campaign is not waited for, and of two sweeps at once each deletes
// positions of its own: the note goes with the last of them, not before.
func TestSweepsTakeTurnsAtPositionsThatAreNotPublished(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := p.cutOff(2)
	p.cancel(id)
	unlock := fixture.LockCampaign(t, p.db, id)
	if got := p.sweep("old-records"); got["positions_deleted"] != 0 {
		t.Errorf("while it is locked: %v", got)
	}
	unlock()
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
	if n := both[0].Counts["positions_deleted"] + both[1].Counts["positions_deleted"]; n != 2*inventory.FillStep || p.made(id) != 0 || p.notes(id) != 0 {
		t.Errorf("%d were deleted, %d are left: %+v", n, p.made(id), both)
	}
}
