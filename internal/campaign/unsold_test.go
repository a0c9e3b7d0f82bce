package campaign_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// bound creates a campaign that is drawn at an end, on sale.
func bound(t *testing.T, db *pgxpool.Pool, end time.Time) uuid.UUID {
	t.Helper()
	d := fixture.Draft(4)
	d.SaleEndsAt, d.Policies.Unsold = &end, campaign.UnsoldDraw
	id := create(t, db, d)
	servers.NoError(t, attempt(t, db, func(tx pgx.Tx) error { return campaign.BindEnd(t.Context(), tx, id) }))
	exec(t, db, `UPDATE campaigns SET state = 'active', published_at = now() WHERE id = $1`, id)
	return id
}

func TestAnEndThatIsBoundInTheRulesCannotMove(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := bound(t, db, noon)
	for name, change := range map[string]campaign.Optional[time.Time]{
		"later": to(pointer(noon.Add(time.Microsecond))), "earlier": to(pointer(noon.Add(-time.Hour))), "none": to[time.Time](nil),
	} {
		p := campaign.Patch{SaleEndsAt: change}
		if err := attempt(t, db, func(tx pgx.Tx) error { return campaign.Amend(t.Context(), tx, id, p) }); fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	same := campaign.Patch{SaleEndsAt: to(&noon), PurchaseLimit: to[int](nil), Name: pointer("New")}
	if err := attempt(t, db, func(tx pgx.Tx) error { return campaign.Amend(t.Context(), tx, id, same) }); err != nil {
		t.Errorf("all but the end: %v", err)
	}
	for _, sql := range []string{ // as a release could that does not know of it
		`UPDATE campaigns SET sale_ends_at = sale_ends_at + interval '1 hour' WHERE id = $1`, `UPDATE campaigns SET sale_ends_at = NULL WHERE id = $1`,
		`UPDATE campaigns SET draws_at = NULL WHERE id = $1`, `UPDATE campaigns SET draws_at = now(), sale_ends_at = now() WHERE id = $1`,
	} {
		if _, err := db.Exec(t.Context(), sql, id); err == nil {
			t.Errorf("the database allowed %s", sql)
		}
	}
	if c := get(t, db, id); c.DrawsAt == nil || !c.DrawsAt.Equal(noon) || !c.SaleEndsAt.Equal(noon) || c.Name != "New" {
		t.Errorf("got %+v", c)
	}
	plain := put(t, db, campaign.Active)
	exec(t, db, `UPDATE campaigns SET sale_ends_at = now() WHERE id = $1`, plain)
	if _, err := db.Exec(t.Context(), `UPDATE campaigns SET draws_at = sale_ends_at WHERE id = $1`, plain); err == nil {
		t.Error("one on sale was bound")
	}
	if err := attempt(t, db, func(tx pgx.Tx) error { return campaign.BindEnd(t.Context(), tx, plain) }); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("one on sale: %v", err)
	}
	endless := create(t, db, fixture.Draft(3))
	if err := attempt(t, db, func(tx pgx.Tx) error { return campaign.BindEnd(t.Context(), tx, endless) }); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("one without an end: %v", err)
	}
}

func TestASaleIsEndedOnceAtItsEndWhenNothingIsReserved(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	over, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	due, paused, soldOut := bound(t, db, over), bound(t, db, over), bound(t, db, over)
	exec(t, db, `UPDATE campaigns SET paused_at = now() WHERE id = $1`, paused)
	exec(t, db, `UPDATE campaigns SET positions_sold = 10 WHERE id = $1`, soldOut)
	early, reserved, cancelled, drawing := bound(t, db, future), bound(t, db, over), bound(t, db, over), put(t, db, campaign.Drawing)
	exec(t, db, `UPDATE campaigns SET positions_reserved = 1 WHERE id = $1`, reserved)
	exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'x' WHERE id = $1`, cancelled)
	plain := put(t, db, campaign.Active) // its policy is another, or an earlier release has published it
	exec(t, db, `UPDATE campaigns SET sale_ends_at = now() - interval '1 minute', policies = '{"unsold": "draw"}' WHERE id = $1`, plain)
	if got, err := campaign.ToDraw(t.Context(), db, 10); err != nil || len(got) != 4 || slices.Contains(got, early) || slices.Contains(got, plain) || slices.Contains(got, cancelled) {
		t.Errorf("to draw: %v, %v", got, err)
	}
	for id, want := range map[uuid.UUID]bool{due: true, paused: true, soldOut: true, early: false, reserved: false, cancelled: false, drawing: false, plain: false} {
		before := get(t, db, id).State
		for round := range 2 {
			var ended bool
			err := attempt(t, db, func(tx pgx.Tx) (err error) {
				ended, err = campaign.EndSale(t.Context(), tx, id)
				return err
			})
			if err != nil || ended != (want && round == 0) {
				t.Errorf("round %d: %v, %v, wanted %v", round, ended, err, want)
			}
		}
		c := get(t, db, id)
		if want && (c.State != campaign.Drawing || c.DrawStartedAt == nil || c.PausedAt != nil) || !want && c.State != before {
			t.Errorf("it was %s and is %+v", before, c)
		}
	}
}

func TestASaleThatIsDrawnAtItsEndIsEndedForEverThen(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	over, open, plain := bound(t, db, time.Now().Add(-time.Minute)), bound(t, db, time.Now().Add(time.Hour)), put(t, db, campaign.Active)
	all := statuses(t, db, over, open, plain)
	if s := all[over]; !s.Ended || s.Open || s.DrawsAt == nil || fault.CodeOf(s.CheckOnSale()) != fault.SaleNotOpen {
		t.Errorf("got %+v", s)
	}
	if s := all[open]; s.Ended || !s.Open || s.DrawsAt == nil || s.CheckOnSale() != nil {
		t.Errorf("got %+v", s)
	}
	if s := all[plain]; s.Ended || s.DrawsAt != nil {
		t.Errorf("got %+v", s)
	}
}
