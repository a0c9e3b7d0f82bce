package drawing_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/verify"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

const aLongSale = 24 * time.Hour

// ending returns a Drawer whose jobs end sales, as a worker has it.
func ending(t *testing.T, db *pgxpool.Pool) *drawing.Drawer {
	t.Helper()
	return drawerWith(t, db, drawing.DrawerOptions{EndSale: func(ctx context.Context, id uuid.UUID) (bool, error) {
		end, err := fixture.Seller(db).EndSale(ctx, id)
		return end.Ended, err
	}})
}

// An operator asks for the draw when the sale is over.
func TestAtItsEndACampaignIsDrawnOverWhatIsSold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sold    []shape.Position
		awarded map[int]int // how many of its prizes each layer awards
	}{
		"two of layer 3, which has three prizes, and one of layer 4": {[]shape.Position{fixture.At(3, 1), fixture.At(3, 3), fixture.At(4, 2)}, map[int]int{3: 2, 4: 1}},
		"nothing": {nil, map[int]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			draft := fixture.DrawnAtEnd(4, aLongSale)
			draft.Layers[2].Prizes[0].Count = 3
			id := fixture.Campaign(t, db, draft)
			for _, position := range c.sold {
				fixture.Complete(t, db, fixture.ChosenRequest(t, id, "a", position))
			}
			clock.MoveOn(aLongSale)
			ref, drawer := ask(t, db, id), ending(t, db)
			if _, err := drawer.Run(t.Context(), ref); !errors.Is(err, drawing.ErrBusy) { // it has ended the sale
				t.Fatalf("the first attempt: %v", err)
			}
			drawn(t, drawer, ref)
			var result drawing.Result
			servers.NoError(t, json.Unmarshal(fixture.Job(t, db, ref.ID).Result, &result))
			proof, _ := verified(t, db, id, verify.Options{})
			awarded := make(map[int]int)
			for i, w := range result.Winners {
				in := proof.Winners[i]
				if (w.Column == nil) != (w.PurchaseID == nil) || (w.Column == nil) != (in.Column == nil) || (w.Column == nil) != (in.Awarded != nil && !*in.Awarded) {
					t.Errorf("%+v, and in the proof %+v", w, in)
				}
				if w.Column != nil {
					awarded[w.Layer]++
				}
			}
			if len(result.Winners) != 6 || len(proof.Winners) != 6 || !maps.Equal(awarded, c.awarded) || result.Root != proof.Root.String() {
				t.Errorf("the result is %+v", result)
			}
			if servers.Value[bool](t, db, `SELECT frozen_at < draws_at FROM freezes JOIN campaigns ON id = campaign_id WHERE id = $1`, id) {
				t.Error("frozen before the end")
			}
			if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != campaign.Completed || c.Counts != (campaign.Counts{Total: 10, Sold: proof.Count}) {
				t.Errorf("%+v, %v", c, err)
			}
			fixture.Sound(t, db)
		})
	}
}

func TestAnOperatorCannotDrawBeforeTheEndNorWithReservations(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale))
	fixture.Sell(t, db, id, 2)
	fixture.Reserve(t, db, id, "a", 1, 2*aLongSale)
	for _, when := range []string{"before the end", "with a reservation"} {
		ref := ask(t, db, id)
		_, err := ending(t, db).Run(t.Context(), ref)
		servers.NoError(t, err)
		if j := fixture.Job(t, db, ref.ID); j.State != job.Failed || j.Problem.Code != fault.NotSoldOut || state(t, db, id) != campaign.Active {
			t.Errorf("%s: %s, %+v, and the campaign is %s", when, j.State, j.Problem, state(t, db, id))
		}
		clock.MoveOn(aLongSale)
	}
	fixture.Sound(t, db)
}

// The clock was set back after it had ended the sale: what would be frozen now, no verifier
// would accept.
func TestNothingIsFrozenBeforeTheEndThatTheRulesName(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale))
	fixture.Sell(t, db, id, 2)
	clock.MoveOn(aLongSale)
	end, err := fixture.Seller(db).EndSale(t.Context(), id)
	if err != nil || !end.Ended {
		t.Fatal(end, err)
	}
	clock.MoveOn(-time.Hour)
	ref, drawer := end.Messages[0].Jobs[0], newDrawer(t, db)
	waits(t, drawer, ref)
	clock.MoveOn(time.Hour)
	drawn(t, drawer, ref)
	fixture.Sound(t, db)
}
