package drawing_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

const aLongSale = 24 * time.Hour

// ending returns a Drawer whose jobs end sales, as a worker has it.
func ending(t *testing.T, db *pgxpool.Pool) *drawing.Drawer {
	t.Helper()
	end := func(ctx context.Context, id uuid.UUID) (bool, error) {
		end, err := fixture.Seller(db).EndSale(ctx, id)
		return end.Ended, err
	}
	return drawing.NewDrawer(db, fixture.Key(t), settings, drawing.DrawerOptions{EndSale: end}, servers.Logger(t))
}

// drawAtEnd lets an operator ask for the draw when the sale is over, and returns its result.
func drawAtEnd(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (result drawing.Result) {
	t.Helper()
	ref, drawer := ask(t, db, id), ending(t, db)
	if _, err := drawer.Run(t.Context(), ref); !errors.Is(err, drawing.ErrBusy) { // it has ended the sale
		t.Fatalf("the first attempt: %v", err)
	}
	if _, err := drawer.Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	j := fixture.Job(t, db, ref.ID)
	if err := json.Unmarshal(j.Result, &result); err != nil {
		t.Fatalf("%+v: %v", j, err)
	}
	return result
}

func TestAtItsEndACampaignIsDrawnOverWhatIsSold(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	draft := fixture.DrawnAtEnd(4, aLongSale)
	draft.Layers[2].Prizes[0].Count = 3
	id := fixture.Campaign(t, db, draft)
	fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "a", fixture.At(3, 1), fixture.At(3, 3)), fixture.ChosenRequest(t, id, "b", fixture.At(4, 2)))
	clock.MoveOn(aLongSale)
	result := drawAtEnd(t, db, id)
	if s := state(t, db, id); s != campaign.Completed {
		t.Errorf("the campaign is %s", s)
	}
	// Layers 1 and 2 have no candidates, layer 3 has two for three prizes, layer 4 has one.
	awarded := map[int]int{}
	for _, w := range result.Winners {
		if (w.Column == nil) != (w.PurchaseID == nil) {
			t.Errorf("%+v", w)
		}
		if w.Column != nil {
			awarded[w.Layer]++
		}
	}
	if len(result.Winners) != 6 || len(awarded) != 2 || awarded[3] != 2 || awarded[4] != 1 {
		t.Errorf("the winners are %+v", result.Winners)
	}
	if w := result.Winners[5]; *w.Column != 2 {
		t.Errorf("the only position of layer 4 did not win: %+v", w)
	}
	if servers.Value[bool](t, db, `SELECT frozen_at < draws_at FROM freezes JOIN campaigns ON id = campaign_id WHERE id = $1`, id) {
		t.Error("frozen before the end")
	}
	fixture.Sound(t, db)
}

func TestACampaignOfWhichNothingIsSoldEndsWithoutWinners(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale))
	clock.MoveOn(aLongSale)
	result := drawAtEnd(t, db, id)
	for _, w := range result.Winners {
		if w.Column != nil {
			t.Errorf("it is won by nobody: %+v", w)
		}
	}
	_, text := written(t, db, id)
	proof, _ := parsed(t, text)
	for _, w := range proof.Winners {
		if w.Awarded == nil || *w.Awarded || w.Column != nil {
			t.Errorf("in the proof a prize that is not awarded is %+v", w)
		}
	}
	if nothing := sha256.Sum256(nil); result.Root != hex.EncodeToString(nothing[:]) || len(result.Winners) != 3 {
		t.Errorf("the result is %+v", result)
	}
	if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != campaign.Completed || c.Counts != (campaign.Counts{Total: 6}) {
		t.Errorf("%+v, %v", c, err)
	}
	fixture.Sound(t, db)
}

func TestAnOperatorCannotDrawBeforeTheEndNorWithReservations(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id := fixture.Campaign(t, db, fixture.DrawnAtEnd(3, aLongSale))
	fixture.Sell(t, db, id, 2)
	fixture.Reserve(t, db, id, "a", 1, 2*aLongSale)
	for _, when := range []string{"before the end", "with a reservation"} {
		ref := ask(t, db, id)
		if _, err := ending(t, db).Run(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if j := fixture.Job(t, db, ref.ID); j.State != job.Failed || j.Problem.Code != fault.NotSoldOut {
			t.Errorf("%s: %s, %+v", when, j.State, j.Problem)
		}
		if s := state(t, db, id); s != campaign.Active {
			t.Errorf("%s: the campaign is %s", when, s)
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
	ref := end.Messages[0].Jobs[0]
	var waits *drawing.Waiting
	if _, err := newDrawer(t, db).Run(t.Context(), ref); !errors.As(err, &waits) {
		t.Errorf("got %v", err)
	}
	clock.MoveOn(time.Hour)
	if _, err := newDrawer(t, db).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if s := state(t, db, id); s != campaign.Completed {
		t.Errorf("the campaign is %s", s)
	}
	fixture.Sound(t, db)
}
