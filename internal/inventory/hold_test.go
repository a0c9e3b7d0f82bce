package inventory_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAHoldIsOverAtItsDeadlineByTheDatabasesClock(t *testing.T) {
	db, id, free := filled(t, 4)
	isOver, active := kept(t, db, -time.Millisecond, free[0], free[1]), kept(t, db, time.Hour, free[2])
	set(t, db, inventory.Reserved, uuid.New(), free[3])
	servers.Exec(t, db, `UPDATE positions SET expires_at = now() - interval '1 s' WHERE campaign_id = $1 AND state = 'reserved'`, id) // may have been paid
	if h, now := fixture.HoldNow(t, db, isOver.ID), fixture.HoldNow(t, db, active.ID); h.State != inventory.HoldExpired || h.EndedAt != nil || !slices.Equal(h.Positions, isOver.Positions) || now.State != inventory.HoldActive {
		t.Errorf("one that is over is %+v, another %+v", h, now)
	}
	if _, err := inventory.GetHold(t.Context(), db, access.Everything(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	var b pgx.Batch
	var recorded []*inventory.Hold // who reads these knows what is over
	inventory.QueueFindOver(&b, []uuid.UUID{id, uuid.New()}, &recorded)
	inventory.QueueGetHolds(&b, []uuid.UUID{active.ID}, func(h *inventory.Hold) { recorded = append(recorded, h) })
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil || len(recorded) != 2 || recorded[0].ID != isOver.ID || recorded[1].ID != active.ID || recorded[0].State != inventory.HoldActive {
		t.Errorf("recorded are %+v, %v", recorded, err)
	}
	// No sweep has run: what is over is shown as free all the same.
	board := all(t, db, id)
	for i, want := range []inventory.State{inventory.Available, inventory.Available, inventory.Held, inventory.Reserved, inventory.Available} {
		p, err := inventory.Get(t.Context(), db, id, free[i].Position)
		if err != nil || p.State != want || (p.UserID == nil) != (want == inventory.Available) || (p.ExpiresAt == nil) != (want == inventory.Available) {
			t.Errorf("position %d is %+v, %v", i, p, err)
		}
		if shown := board[p.Number-1]; shown.Position != p.Position || shown.State != want {
			t.Errorf("position %d is shown as %+v", i, shown)
		}
	}
	for _, at := range []shape.Position{{}, {Layer: 5, Column: 1}, {Layer: 4, Column: 5}, {Layer: 1, Column: 0}} {
		if _, err := inventory.Get(t.Context(), db, id, at); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("position %v: %v", at, err)
		}
	}
	own, err := inventory.OfUser(t.Context(), db, id, "", "holder")
	if err != nil || len(own) != 1 || own[0].Position != free[2].Position {
		t.Errorf("its user has %+v, %v", own, err)
	}
}

func TestPositionsAreCountedByLayer(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fill(t, db, 3), fill(t, db, 3)
	at := func(layer, column int) inventory.FreePosition {
		return inventory.FreePosition{PositionID: inventory.PositionID{CampaignID: id, Position: fixture.At(layer, column)}}
	}
	set(t, db, inventory.Sold, uuid.New(), at(1, 1), at(3, 2))
	set(t, db, inventory.Held, uuid.New(), at(2, 1), at(3, 3))
	set(t, db, inventory.Reserved, uuid.New(), at(3, 1))
	set(t, db, inventory.Blocked, uuid.New(), at(2, 2))
	servers.Exec(t, db, `UPDATE positions SET expires_at = now() - interval '1 s' WHERE layer = 3 AND expires_at IS NOT NULL`) // a hold that is over, and a reservation
	got, err := inventory.CountByLayer(t.Context(), db, id)
	want := []inventory.LayerCounts{{Layer: 1, Sold: 1}, {Layer: 2, Reserved: 1, Blocked: 1}, {Layer: 3, Available: 1, Reserved: 1, Sold: 1}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	gone, err := inventory.CountGone(t.Context(), db, []inventory.Need{needs(id, 3, 7), needs(other, 3, 0), needs(id, 2, 0), needs(id, 1, 0), needs(uuid.New(), 1, 0)})
	if err != nil || !slices.Equal(gone, []int{1, 0, 1, 1, 0}) {
		t.Errorf("sold or blocked: %v, %v", gone, err)
	}
}

func TestExpireIsBoundedAndLeavesWhatIsNotDue(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, nil)
	for _, user := range []string{"a", "b", "c"} {
		fixture.EndHold(t, db, fixture.Hold(t, service, fixture.HoldAnyRequest(other, user, 0, 1)))
	}
	var all []inventory.Hold // made before any of them is over: a hold made would end it
	for _, user := range []string{"a", "b", "c", "d"} {
		all = append(all, fixture.Hold(t, service, fixture.HoldAnyRequest(id, user, 0, 3)))
	}
	for _, h := range all[:3] {
		fixture.EndHold(t, db, h)
	}
	for _, want := range [][2]int{{2, 6}, {1, 3}, {0, 0}} {
		holds, positions, err := inventory.ExpireHolds(t.Context(), db, id, 2)
		if err != nil || holds != want[0] || positions != want[1] {
			t.Errorf("%d holds and %d positions, %v; want %v", holds, positions, err, want)
		}
		fixture.Sound(t, db)
	}
	if h := fixture.HoldNow(t, db, all[3].ID); h.State != inventory.HoldActive {
		t.Errorf("one that is not due is %+v", h)
	}
	if n, _, err := inventory.ExpireHolds(t.Context(), db, other, 10); n == 0 || err != nil {
		t.Errorf("in the other campaign: %d, %v", n, err)
	}
	if _, _, err := inventory.ExpireHolds(t.Context(), db, uuid.New(), 10); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of no campaign: %v", err)
	}
}

// All four wait for the campaign, in several orders. The hold is over when they get
// it, or it is not.
func TestAtTheDeadlineOneOfReleasePurchaseAndSweepWins(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service, other := fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, nil, nil) // of one, both changes would share a transaction
	service.SetRowWait(servers.Patience, servers.Patience)
	other.SetRowWait(servers.Patience, servers.Patience)
	id := fixture.Campaign(t, db, fixture.Draft(8))
	for round := range 8 {
		over := round%2 == 1
		h := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 2))
		refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID))
		race := []struct {
			ends inventory.HoldState // what the hold is when this wins
			do   func() (won bool, err error)
		}{
			{inventory.HoldActive, func() (bool, error) { _, err := extendAt(t, service, h.ID, time.Minute); return false, err }},
			{inventory.HoldReleased, func() (bool, error) { return releaseAt(t, other, h.ID) }},
			{inventory.HoldExpired, func() (bool, error) { n, _, err := inventory.ExpireHolds(t.Context(), db, id, 10); return n > 0, err }},
			{inventory.HoldUsed, func() (bool, error) {
				report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
				return report.HoldsUsed == 1, err
			}},
		}
		unlock := fixture.LockCampaign(t, db, id)
		won := make([]bool, len(race))
		var all sync.WaitGroup
		for i := range race {
			which := (i + round/2) % len(race)
			all.Go(func() {
				var err error
				won[which], err = race[which].do()
				if err != nil && fault.CodeOf(err) == fault.InternalError {
					t.Errorf("round %d: %v", round, err)
				}
			})
			servers.AwaitBlocked(t, db, i+1)
		}
		if over {
			fixture.EndHoldMeanwhile(t, db, h)
		}
		unlock()
		all.Wait()
		end, winners := fixture.HoldNow(t, db, h.ID), 0
		for i := range race {
			if won[i] {
				winners++
				if end.State != race[i].ends {
					t.Errorf("round %d: %s won, and the hold is %+v", round, race[i].ends, end)
				}
			}
		}
		if winners > 1 || winners == 0 && !over || over != (end.State == inventory.HoldExpired) { // a purchase may end one that is over
			t.Errorf("round %d: %d have won, and the hold is %+v", round, winners, end)
		}
		if j := fixture.Job(t, db, refs[0].ID); !j.State.Final() || (j.Problem == nil) != (end.State == inventory.HoldUsed) {
			t.Errorf("round %d: the purchase is %s, %+v, the hold %+v", round, j.State, j.Problem, end)
		}
		fixture.Sound(t, db)
	}
}

func TestAPageOfHoldsReadsNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	const n, limit = 30_000, 20
	db, old, campaign := servers.DB(t), uuid.New(), uuid.New()
	_, err := db.Exec(t.Context(), `
		INSERT INTO holds (id, campaign_id, user_id, client, positions, currency, size, state, expires_at, ends_by, ended_at)
		SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))::uuid, CASE WHEN i < 3000 THEN $2::uuid ELSE $3::uuid END, 'user-' || i % 1000, CASE WHEN i % 1000 = 500 THEN 'kiosk' ELSE 'shop' END,
		       '[{"layer":1,"column":1,"price":100}]', 'JPY', 1, CASE WHEN i % 3000 = 0 THEN 'active' ELSE 'released' END, now() + interval '1 hour', now() + interval '1 hour', CASE WHEN i % 3000 > 0 THEN now() END
		FROM generate_series(1, $1::int) AS i`, n, old, campaign)
	servers.NoError(t, err)
	servers.Exec(t, db, `VACUUM (ANALYZE, INDEX_CLEANUP ON) holds`)
	reads, all := servers.CountReads(t, db), access.Everything()
	for name, c := range map[string]struct {
		filter     inventory.HoldFilter
		rows, most int
	}{
		"of a campaign":           {inventory.HoldFilter{Who: all, CampaignID: campaign}, limit, 2 * limit},
		"of an old campaign":      {inventory.HoldFilter{Who: all, CampaignID: old}, limit, 2 * limit},
		"of a client":             {inventory.HoldFilter{Who: access.OfClient("kiosk"), CampaignID: campaign}, limit, 2 * limit},
		"of a client without any": {inventory.HoldFilter{Who: access.OfClient("nobody"), CampaignID: campaign}, 0, 2},
		"of nobody":               {inventory.HoldFilter{CampaignID: campaign}, 0, 2},
		"of a user":               {inventory.HoldFilter{Who: all, UserID: "user-7"}, limit, 2 * limit},
		"of a user in a campaign": {inventory.HoldFilter{Who: all, UserID: "user-7", CampaignID: old}, 3, 100},
		"active of a campaign":    {inventory.HoldFilter{Who: all, CampaignID: campaign, State: inventory.HoldActive}, 10, 2 * 10},
		"active of a user":        {inventory.HoldFilter{Who: all, UserID: "user-0", State: inventory.HoldActive}, 10, 100},
		"expired of a campaign":   {inventory.HoldFilter{Who: all, CampaignID: campaign, State: inventory.HoldExpired}, 0, 2*postgres.ListWindow + 10},
	} {
		list, _, err := inventory.ListHolds(t.Context(), reads, c.filter, postgres.ListPage{Limit: limit})
		if err != nil {
			t.Fatal(name, err)
		}
		if rows, plan := reads.Rows(); rows > c.most || len(list) != c.rows {
			t.Errorf("%s: %d holds, want %d, %d rows looked at, want %d at most: %s", name, len(list), c.rows, rows, c.most, plan)
		}
	}
}

func TestTheTableRefusesPositionsThatCannotBe(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 3)
	for _, change := range []string{
		`col = 0`, `col = 500501`, `price = 0`,
		`state = 'lost', user_id = 'a'`,
		`user_id = 'a'`,
		`state = 'held', expires_at = now()`,
		`state = 'held', user_id = 'a'`,
		`state = 'held', user_id = 'a', expires_at = now(), purchase_id = $1`,
		`state = 'reserved', user_id = 'a', purchase_id = $1`,
		`state = 'reserved', user_id = 'a', expires_at = now()`,
		`state = 'sold', user_id = 'a', purchase_id = $1`,
		`state = 'sold', user_id = 'a', sold_at = now()`,
		`state = 'sold', user_id = 'a', purchase_id = $1, sold_at = now(), expires_at = now()`,
		`state = 'sold', purchase_id = $1, sold_at = now()`,
		`state = 'blocked', user_id = 'a'`, `state = 'blocked', hold_id = $1`, `state = 'blocked', block_reason = ''`, `block_reason = 'house'`,
		`expires_at = now()`, `purchase_id = $1`, `sold_at = now()`,
		`layer = 2`, // there is one
	} {
		if tag, err := db.Exec(t.Context(), `UPDATE positions SET `+change+` WHERE campaign_id = $1 AND layer = 1`, id); err == nil {
			t.Errorf("%s: %v", change, tag)
		}
	}
}
