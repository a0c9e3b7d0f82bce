package inventory_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// holdsFor makes holds of one position each in a new campaign, that end so much from now.
func holdsFor(t *testing.T, db *pgxpool.Pool, in ...time.Duration) (holds []inventory.Hold) {
	t.Helper()
	free := ranked(t, db, fill(t, db, 4), 0)
	for i, d := range in {
		holds = append(holds, kept(t, db, d, free[i]))
	}
	return holds
}

func findOver(t *testing.T, db *pgxpool.Pool, campaigns ...uuid.UUID) (found []inventory.Over) {
	t.Helper()
	var b pgx.Batch
	inventory.QueueFindOver(&b, campaigns, &found)
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAHoldIsOverAtItsDeadlineByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	holds := holdsFor(t, db, -time.Second, time.Hour)
	if h := fixture.HoldNow(t, db, holds[0].ID); h.State != inventory.HoldExpired || h.EndedAt != nil || len(h.Positions) != 1 || h.Positions[0] != holds[0].Positions[0] {
		t.Errorf("one that is over is %+v", h)
	}
	if h := fixture.HoldNow(t, db, holds[1].ID); h.State != inventory.HoldActive {
		t.Errorf("one that is not is %+v", h)
	}
	if _, err := inventory.GetHold(t.Context(), db, access.Everything(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	if got := findOver(t, db, holds[0].CampaignID, uuid.New()); !slices.Equal(got, []inventory.Over{overOf(holds[0])}) {
		t.Errorf("over are %+v", got)
	}
	var b pgx.Batch
	states := make(map[uuid.UUID]inventory.HoldState)
	inventory.QueueGetHolds(&b, []uuid.UUID{holds[0].ID, holds[1].ID}, func(h inventory.Hold) { states[h.ID] = h.State })
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil || states[holds[0].ID] != inventory.HoldActive || states[holds[1].ID] != inventory.HoldActive {
		t.Errorf("recorded are %v, %v", states, err) // who reads these knows what is over
	}
}

func TestWhatBecameOfAHoldIsSaid(t *testing.T) {
	t.Parallel()
	purchase, deadline := uuid.New(), time.Date(2026, 7, 1, 9, 0, 0, 5_000_000, time.FixedZone("", 7200))
	for state, want := range map[inventory.HoldState]struct {
		code fault.Code
		text string
	}{
		inventory.HoldActive:   {"", ""},
		inventory.HoldUsed:     {fault.StateConflict, "used by purchase " + purchase.String()},
		inventory.HoldReleased: {fault.HoldExpired, "was released"},
		inventory.HoldExpired:  {fault.HoldExpired, "ended at 2026-07-01T07:00:00.005Z"},
	} {
		err := inventory.Hold{State: state, PurchaseID: &purchase, ExpiresAt: deadline}.CheckActive()
		if want.code == "" && err != nil || want.code != "" && (fault.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text)) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

func TestTheCampaignsWithTheOldestHoldsThatAreOverAreFoundFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	young := holdsFor(t, db, -time.Second, time.Hour)[0].CampaignID
	old := holdsFor(t, db, -time.Hour, -time.Minute)[0].CampaignID
	middle := holdsFor(t, db, -30*time.Minute)[0].CampaignID
	holdsFor(t, db, time.Hour)
	ended := holdsFor(t, db, -2*time.Hour)[0]
	change(t, db, func(b *pgx.Batch) { inventory.QueueExpire(b, []inventory.Over{overOf(ended)}) })
	for limit, want := range map[int][]uuid.UUID{1: {old}, 2: {old, middle}, 3: {old, middle}, 4: {old, middle, young}, 100: {old, middle, young}} {
		got, err := inventory.CampaignsWithHoldsOver(t.Context(), db, []uuid.UUID{}, limit)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("up to %d: %v, %v; want %v", limit, got, err, want)
		}
	}
	if got, err := inventory.CampaignsWithHoldsOver(t.Context(), db, []uuid.UUID{old, young}, 1); err != nil || !slices.Equal(got, []uuid.UUID{middle}) {
		t.Errorf("but for two: %v, %v", got, err)
	}
}

func TestOnlyHoldsThatEndedLongAgoAreDeleted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	holds := holdsFor(t, db, -48*time.Hour, time.Hour, time.Hour, time.Hour, time.Hour) // the first is over for long, and no sweep has ended it
	for _, h := range holds[1:4] {
		change(t, db, func(b *pgx.Batch) { queueRelease(b, h) })
	}
	servers.Exec(t, db, `UPDATE holds SET ended_at = clock_timestamp() - interval '25 h' WHERE id = ANY($1)`, []uuid.UUID{holds[1].ID, holds[3].ID})
	var from *time.Time
	for _, want := range []int{1, 1, 0} {
		n, next, err := inventory.DeleteEndedHolds(t.Context(), db, 24*time.Hour, from, 1)
		if n != want || err != nil {
			t.Errorf("%d deleted, %v; want %d", n, err, want)
		}
		from = next
	}
	for i, there := range []bool{true, false, true, false, true} {
		if _, err := inventory.GetHold(t.Context(), db, access.Everything(), holds[i].ID); (err == nil) != there {
			t.Errorf("hold %d: %v", i, err)
		}
	}
}

// No sweep has run: what is over is shown as free all the same.
func TestAnExpiredHoldIsShownAsFree(t *testing.T) {
	db, id, free := filled(t, 4)
	kept(t, db, -time.Millisecond, free[0], free[1])
	kept(t, db, time.Hour, free[2])
	set(t, db, inventory.Reserved, uuid.New(), free[3])
	servers.Exec(t, db, `UPDATE positions SET expires_at = now() - interval '1 s' WHERE campaign_id = $1 AND state = 'reserved'`, id) // may have been paid
	for i, want := range []inventory.State{inventory.Available, inventory.Available, inventory.Held, inventory.Reserved, inventory.Available} {
		p, err := inventory.Get(t.Context(), db, id, free[i].Position)
		if err != nil || p.State != want || (p.UserID == nil) != (want == inventory.Available) || (p.ExpiresAt == nil) != (want == inventory.Available) {
			t.Errorf("position %d is %+v, %v", i, p, err)
		}
		if shown := all(t, db, id)[slices.IndexFunc(all(t, db, id), func(q inventory.Position) bool { return q.Position == p.Position })]; shown.State != want {
			t.Errorf("position %d is shown as %+v", i, shown)
		}
	}
	own, err := inventory.OfUser(t.Context(), db, id, "", "holder")
	if err != nil || len(own) != 1 || own[0].Position != free[2].Position {
		t.Errorf("its user has %+v, %v", own, err)
	}
	layers, err := inventory.CountByLayer(t.Context(), db, id)
	available, reserved := 0, 0
	for _, l := range layers {
		available, reserved = available+l.Available, reserved+l.Reserved
	}
	if err != nil || available != 8 || reserved != 2 {
		t.Errorf("%d are available and %d reserved, %v", available, reserved, err)
	}
	if n, err := inventory.CountGone(t.Context(), db, []inventory.Need{needs(id, 4, 0), needs(id, 3, 0)}); err != nil || !slices.Equal(n, []int{0, 0}) {
		t.Errorf("sold: %v, %v", n, err)
	}
}

func TestWhatBecomesOfHoldsIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := inventory.NewHoldMetrics(registry)
	m.Count(inventory.HoldsMade, 2)
	m.Count(inventory.HoldsExpired, 0)
	(*inventory.HoldMetrics)(nil).Count(inventory.HoldsMade, 1)
	found, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]float64)
	for _, series := range found[0].GetMetric() {
		counted[series.GetLabel()[0].GetValue()] = series.GetCounter().GetValue()
	}
	want := map[string]float64{"made": 2, "used": 0, "released": 0, "extended": 0, "expired": 0, "reclaimed": 0}
	if !maps.Equal(counted, want) {
		t.Errorf("counted %v", counted)
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
	if err != nil {
		t.Fatal(err)
	}
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

func TestAFilledCampaignHasEveryPositionOnceAndFree(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	other := fill(t, db, 3)
	id := fill(t, db, 7)
	positions, i := all(t, db, id), 0
	for at := range fixture.Triangle(7).All() {
		want := inventory.Position{Place: fixture.OfTriangle(at), Price: money.Amount(100 * at.Layer), State: inventory.Available}
		if i < len(positions) && positions[i] != want {
			t.Errorf("position %d is %+v, want %+v", i, positions[i], want)
		}
		i++
	}
	if len(positions) != 28 {
		t.Errorf("%d positions", len(positions))
	}
	if n := len(all(t, db, other)); n != 6 {
		t.Errorf("the other board has %d positions", n)
	}
	if n := len(all(t, db, uuid.New())); n != 0 {
		t.Errorf("a board that was not filled has %d positions", n)
	}
}

func TestTheRanksAreAnOrderOfEachCampaignOfItsOwn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ranks := func() []int {
		return servers.Value[[]int](t, db, `SELECT array_agg(rank ORDER BY layer, col) FROM positions WHERE campaign_id = $1`, fill(t, db, 12))
	}
	a, b := ranks(), ranks()
	if slices.Equal(a, b) || slices.IsSorted(a) || slices.IsSorted(b) {
		t.Errorf("of two boards: %v and %v", a, b)
	}
	for _, order := range [][]int{a, b} {
		slices.Sort(order)
		for i, rank := range order {
			if rank != i {
				t.Fatalf("rank %d comes as number %d: %v", rank, i, order)
			}
		}
	}
}

func TestACampaignIsFilledOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	first := peek(t, db, needs(id, 0, 100))
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		return inventory.Fill(t.Context(), tx, id, inventory.Plan{Shape: fixture.Triangle(5), Prices: []money.Amount{1, 2, 3, 4, 5}})
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "23505" { // a unique violation
		t.Errorf("filled again: %v", err)
	}
	if again := peek(t, db, needs(id, 0, 100)); !slices.Equal(again, first) {
		t.Errorf("the positions changed: %v, %v", first, again)
	}
}

func TestOnePositionIsShownAsInTheListOfAll(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	sell(t, db, "a", uuid.New(), peek(t, db, needs(id, 0, 3))...)
	for _, want := range all(t, db, id) {
		got, err := inventory.Get(t.Context(), db, id, want.Position)
		if err != nil || got.Position != want.Position || got.State != want.State || got.Price != want.Price || (got.UserID == nil) != (want.UserID == nil) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, at := range []shape.Position{{}, {Layer: 5, Column: 1}, {Layer: 4, Column: 5}, {Layer: 1, Column: 0}, {Layer: -1, Column: -1}} {
		if _, err := inventory.Get(t.Context(), db, id, at); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("position %v: %v", at, err)
		}
	}
	if _, err := inventory.Get(t.Context(), db, uuid.New(), shape.Position{Layer: 1, Column: 1}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of another campaign: %v", err)
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
		`rank = (SELECT rank FROM positions WHERE campaign_id = $1 AND layer = 2 AND col = 1)`,
	} {
		if tag, err := db.Exec(t.Context(), `UPDATE positions SET `+change+` WHERE campaign_id = $1 AND layer = 1`, id); err == nil {
			t.Errorf("%s: %v", change, tag)
		}
	}
}

func TestPositionsAreCountedByLayer(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fill(t, db, 3), fill(t, db, 3)
	at := func(layer, column int) inventory.Free {
		return inventory.Free{PositionID: inventory.PositionID{CampaignID: id, Position: fixture.At(layer, column)}}
	}
	set(t, db, inventory.Sold, uuid.New(), at(1, 1), at(3, 2), at(3, 3))
	set(t, db, inventory.Held, uuid.New(), at(2, 1))
	set(t, db, inventory.Reserved, uuid.New(), at(3, 1))
	set(t, db, inventory.Blocked, uuid.New(), at(2, 2))
	got, err := inventory.CountByLayer(t.Context(), db, id)
	want := []inventory.LayerCounts{{Layer: 1, Sold: 1}, {Layer: 2, Reserved: 1, Blocked: 1}, {Layer: 3, Reserved: 1, Sold: 2}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := inventory.CountByLayer(t.Context(), db, uuid.New()); err != nil || len(got) != 0 {
		t.Errorf("of an unknown campaign: %+v, %v", got, err)
	}
	gone, err := inventory.CountGone(t.Context(), db, []inventory.Need{
		needs(id, 3, 7), needs(other, 3, 0), needs(id, 2, 0), needs(id, 1, 0), needs(uuid.New(), 1, 0)})
	if err != nil || !slices.Equal(gone, []int{2, 0, 1, 1, 0}) {
		t.Errorf("sold or blocked: %v, %v", gone, err)
	}
	if gone, err := inventory.CountGone(t.Context(), db, nil); err != nil || len(gone) != 0 {
		t.Errorf("of no layers: %v, %v", gone, err)
	}
}
