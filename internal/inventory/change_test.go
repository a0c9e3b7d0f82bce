package inventory_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A position that was changed since it was found is neither held nor sold, and
// nothing else of the same transaction is.
func TestAPositionThatMovedIsNeitherHeldNorSold(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, move := range map[string]func(f inventory.Free){
		"held":     func(f inventory.Free) { kept(t, db, time.Hour, f) },
		"reserved": func(f inventory.Free) { set(t, db, inventory.Reserved, uuid.New(), f) },
		"sold":     func(f inventory.Free) { sell(t, db, "first", uuid.New(), f) },
		"held and free again": func(f inventory.Free) {
			set(t, db, inventory.Held, uuid.New(), f)
			set(t, db, inventory.Available, uuid.New(), f)
		},
		"held, at the same version":     func(f inventory.Free) { set(t, db, inventory.Held, uuid.New(), f); setBack(t, db, f) },
		"reserved, at the same version": func(f inventory.Free) { set(t, db, inventory.Reserved, uuid.New(), f); setBack(t, db, f) },
	} {
		id := fill(t, db, 4)
		free := peek(t, db, needs(id, 0, 3))
		move(free[1])
		changed := fixture.Watch(t, db)
		if sell(t, db, "second", uuid.New(), free...) {
			t.Errorf("%s: sold", name)
		}
		if _, done := keep(t, db, time.Hour, free...); done {
			t.Errorf("%s: held", name)
		}
		wrong := free[0]
		wrong.CampaignID = uuid.New()
		if sell(t, db, "third", uuid.New(), wrong) {
			t.Errorf("%s: a position of another campaign was sold", name)
		}
		changed(``)
	}
}

func TestAHoldEndsOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 8)
	ends := map[inventory.HoldState]func(b *pgx.Batch, h inventory.Hold){
		inventory.HoldUsed: func(b *pgx.Batch, h inventory.Hold) {
			inventory.QueueSell(b, []inventory.Owned{{PurchaseID: uuid.New(), UserID: "holder", HoldID: h.ID, Picked: foundKept(t, db, h)}})
		},
		inventory.HoldReleased: queueRelease,
		inventory.HoldExpired:  func(b *pgx.Batch, h inventory.Hold) { inventory.QueueExpire(b, []inventory.Over{overOf(h)}) },
	}
	for first, end := range ends {
		in := time.Hour
		if first == inventory.HoldExpired {
			in = -time.Second
		}
		free := ranked(t, db, id, 0)
		mine, other := kept(t, db, in, free[0]), kept(t, db, in, free[1])
		if !change(t, db, func(b *pgx.Batch) { end(b, mine) }) {
			t.Errorf("%s: it did not end", first)
		}
		before := fixture.HoldNow(t, db, mine.ID)
		if before.State != first || before.EndedAt == nil || (before.PurchaseID != nil) != (first == inventory.HoldUsed) {
			t.Errorf("%s: it is %+v", first, before)
		}
		if h := fixture.HoldNow(t, db, other.ID); h.EndedAt != nil {
			t.Errorf("%s: another is %+v", first, h)
		}
		changed := fixture.Watch(t, db)
		for second, again := range ends {
			if change(t, db, func(b *pgx.Batch) { again(b, mine) }) {
				t.Errorf("%s, then %s", first, second)
			}
		}
		if change(t, db, func(b *pgx.Batch) { queueExtend(b, mine, time.Now().Add(2*time.Hour)) }) {
			t.Errorf("%s, then extended", first)
		}
		changed(``)
	}
	young := kept(t, db, time.Hour, ranked(t, db, id, 0)[0])
	if change(t, db, func(b *pgx.Batch) { inventory.QueueExpire(b, []inventory.Over{overOf(young)}) }) {
		t.Error("one that is not over has expired")
	}
}

// foundKept finds what a hold keeps, or kept, as a sale does.
func foundKept(t *testing.T, db *pgxpool.Pool, h inventory.Hold) (picked []*inventory.Free) {
	t.Helper()
	var at []inventory.PositionID
	for _, p := range h.Positions {
		at = append(at, inventory.PositionID{CampaignID: h.CampaignID, Position: p.Position})
	}
	found, err := inventory.Find(t.Context(), begin(t, db), at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		picked = append(picked, &found[i].Free)
	}
	return picked
}

func TestAHeldPositionIsSoldToItsHoldOnly(t *testing.T) {
	db, id, free := filled(t, 4)
	mine, others := kept(t, db, time.Hour, free[0]), kept(t, db, time.Hour, free[1])
	for i := range 2 {
		free[i].Version++
	}
	sale := func(holdID uuid.UUID, f inventory.Free) inventory.Owned {
		return inventory.Owned{Picked: []*inventory.Free{&f}, HoldID: holdID, UserID: "holder", PurchaseID: uuid.New()}
	}
	changed := fixture.Watch(t, db)
	for what, sales := range map[string][]inventory.Owned{
		"without a hold":        {sale(uuid.Nil, free[0])},
		"by another hold":       {sale(others.ID, free[0])},
		"a free one by a hold":  {sale(mine.ID, free[2])},
		"at another version":    {sale(mine.ID, inventory.Free{PositionID: free[0].PositionID, Version: free[0].Version + 1})},
		"one of two wrongly":    {sale(mine.ID, free[0]), sale(uuid.Nil, free[1])},
		"by a hold that is not": {sale(uuid.New(), free[0])},
	} {
		if change(t, db, func(b *pgx.Batch) { inventory.QueueSell(b, sales) }) {
			t.Errorf("%s: sold", what)
		}
	}
	changed(``)
	right := []inventory.Owned{sale(mine.ID, free[0]), sale(others.ID, free[1]), sale(uuid.Nil, free[2])}
	if !change(t, db, func(b *pgx.Batch) { inventory.QueueSell(b, right) }) {
		t.Error("each by its own, and a free one: not sold")
	}
	for _, f := range free[:3] {
		if p, err := inventory.Get(t.Context(), db, id, f.Position); err != nil || p.State != inventory.Sold {
			t.Errorf("it is %+v, %v", p, err)
		}
	}
	for i, h := range []inventory.Hold{mine, others} {
		if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldUsed || *now.PurchaseID != right[i].PurchaseID {
			t.Errorf("its hold is %+v", now)
		}
	}
}

// The statements name the state and the purchase.
func TestWhatAPurchaseGivesBackIsItsOwn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for state, c := range map[inventory.State]struct {
		other inventory.State
		queue func(b *pgx.Batch, given []inventory.Owned)
	}{inventory.Sold: {inventory.Reserved, inventory.QueueFreeSold}, inventory.Reserved: {inventory.Sold, inventory.QueueFreeReserved}} {
		id := fill(t, db, 4)
		mine, other := uuid.New(), uuid.New()
		free := ranked(t, db, id, 0)
		own, othersOwn, another, held, untouched := free[:3], free[3:5], free[5], free[6], free[7]
		set(t, db, state, mine, own...)
		set(t, db, state, other, othersOwn...)
		set(t, db, c.other, mine, another)
		set(t, db, inventory.Held, uuid.Nil, held)
		back := func(purchase uuid.UUID, positions ...inventory.Free) bool {
			return change(t, db, func(b *pgx.Batch) { c.queue(b, returns(purchase, positions...)) })
		}
		changed := fixture.Watch(t, db)
		for name, wrong := range map[string][]inventory.Free{"in another state": {own[0], another}, "another's": {own[0], othersOwn[0]}, "a held one": {held}, "a free one": {untouched}} {
			if back(mine, wrong...) {
				t.Errorf("%s: %s was given back", state, name)
			}
		}
		changed(``)
		if !back(mine, own...) || back(mine, own...) {
			t.Errorf("%s: not given back once", state)
		}
		for _, f := range own {
			if f.Version = 2; !slices.Contains(ranked(t, db, id, 0), f) {
				t.Errorf("%s: %+v is not free again", state, f)
			}
		}
		// The first of them has a new owner by now, who is not the one who gives back late.
		set(t, db, state, other, own[0])
		if back(mine, own[0]) || !back(other, append(othersOwn, own[0])...) {
			t.Errorf("%s: a late return took a position from its new owner", state)
		}
	}
}

// The transaction has decided so. The statement holds without it, too.
func TestNothingIsReservedBeyondTheTimeThatItsUserMayKeepIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 4)
	turns := inventory.HoldQuota{Max: 20 * time.Minute, Rest: 10 * time.Minute}
	kept, free := ranked(t, db, id, 0)[0], ranked(t, db, id, 0)[1]
	ended := inventory.Owned{CampaignID: id, UserID: "a", Items: []shape.Item{{Place: fixture.OfTriangle(kept.Position)}}, HeldSince: time.Now().Add(-16 * time.Minute),
		ReservedAt: time.Now().Add(-16 * time.Minute), Deadline: time.Now().Add(time.Hour)}
	if !change(t, db, func(b *pgx.Batch) { inventory.QueueAddReservedTimes(b, []inventory.Owned{ended}) }) {
		t.Fatal("not noted")
	}
	reserve := func(user string, f inventory.Free, d time.Duration, turns inventory.HoldQuota) bool {
		t.Helper()
		var done bool
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			var b pgx.Batch
			inventory.QueueReserve(&b, []inventory.Owned{{UserID: user, PurchaseID: uuid.New(), Picked: pointers([]inventory.Free{f}), For: d}}, time.Now(), turns, time.Hour)
			done = tx.SendBatch(t.Context(), &b).Close() == nil
			return errNotNow
		})
		if !errors.Is(err, errNotNow) {
			t.Fatal(err)
		}
		return done
	}
	for name, c := range map[string]struct {
		user  string
		of    inventory.Free
		d     time.Duration
		turns inventory.HoldQuota
		want  bool
	}{
		"too long":         {"a", kept, 5 * time.Minute, turns, false},
		"what is left":     {"a", kept, 3 * time.Minute, turns, true},
		"another user":     {"b", kept, 20 * time.Minute, turns, true},
		"another position": {"a", free, 20 * time.Minute, turns, true},
		"after a rest":     {"a", kept, 20 * time.Minute, inventory.HoldQuota{Max: 20 * time.Minute}, true},
	} {
		if got := reserve(c.user, c.of, c.d, c.turns); got != c.want {
			t.Errorf("%s: reserved %t", name, got)
		}
	}
}

var errNotNow = errors.New("it is rolled back")

// The statements name the state: only a free position is blocked, and only a blocked one is free
// again.
func TestOnlyFreePositionsAreBlocked(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, state := range []inventory.State{inventory.Available, inventory.Held, inventory.Reserved, inventory.Sold} {
		id := fill(t, db, 4)
		f := peek(t, db, needs(id, 0, 1))[0]
		if state != inventory.Available {
			set(t, db, state, uuid.New(), f)
		}
		chosen := []shape.Position{f.Position}
		unblock := func(b *pgx.Batch) { inventory.QueueBlocking(b, id, chosen, inventory.Blocked, "") }
		if change(t, db, unblock) {
			t.Errorf("%s: it was unblocked", state)
		}
		blocked := change(t, db, func(b *pgx.Batch) { inventory.QueueBlocking(b, id, chosen, inventory.Available, "wheelchair") })
		if blocked != (state == inventory.Available) || blocked && !change(t, db, unblock) {
			t.Errorf("%s: blocked: %t", state, blocked)
		}
		if p, err := inventory.Get(t.Context(), db, id, f.Position); err != nil || p.State != state {
			t.Errorf("%s: now it is %s, %v", state, p.State, err)
		}
	}
}
