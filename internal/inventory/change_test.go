package inventory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// The statements name the state, the version and the owner: without the lock nothing is overwritten either.
func TestNoStatementChangesWhatIsNotAsItWasRead(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fill(t, db, 6)
	free := ranked(t, db, id, 0) // 21, all at version 0
	mine, other, over := kept(t, db, 10*time.Hour, free[0], free[1]), kept(t, db, 10*time.Hour, free[2]), kept(t, db, -time.Second, free[3])
	buyer := uuid.New()
	set(t, db, inventory.Sold, buyer, free[4])
	set(t, db, inventory.Reserved, buyer, free[5])
	set(t, db, inventory.Sold, uuid.New(), free[6])
	set(t, db, inventory.Reserved, uuid.New(), free[7])
	set(t, db, inventory.Blocked, uuid.Nil, free[8])
	set(t, db, inventory.Held, uuid.New(), free[9])
	set(t, db, inventory.Available, uuid.Nil, free[9])
	for i, state := range []inventory.State{inventory.Held, inventory.Reserved} {
		set(t, db, state, uuid.New(), free[10+i])
		servers.Exec(t, db, `UPDATE positions SET version = 0 WHERE campaign_id = $1 AND (layer, col) = ($2, $3)`, id, free[10+i].Layer, free[10+i].Column)
	}
	quota := inventory.HoldQuota{Max: 20 * time.Minute, Rest: 10 * time.Minute}
	item := func(f inventory.FreePosition) []shape.Item {
		return []shape.Item{{Seat: fixture.OfTriangle(f.Position)}}
	}
	rested := inventory.Allocation{CampaignID: id, UserID: "holder", Items: item(free[12]), HeldSince: time.Now().Add(-16 * time.Minute), ReservedAt: time.Now().Add(-16 * time.Minute), Deadline: time.Now().Add(time.Hour)}
	do := func(queue func(b *pgx.Batch)) bool { return change(t, db, queue) }
	hold := func(ttl time.Duration, free ...inventory.FreePosition) func(b *pgx.Batch) {
		return func(b *pgx.Batch) {
			if err := inventory.QueueHold(b, []inventory.NewHold{newHold(ttl, free...)}, quota); err != nil {
				t.Error(err)
			}
		}
	}
	sells := func(holdID uuid.UUID, version int, free ...inventory.FreePosition) func(b *pgx.Batch) {
		for i := range free {
			free[i].Version = version
		}
		return func(b *pgx.Batch) {
			inventory.QueueSell(b, []inventory.Allocation{{UserID: "holder", PurchaseID: uuid.New(), HoldID: holdID, Picked: pointers(free)}})
		}
	}
	reserves := func(d time.Duration, user string) func(b *pgx.Batch) {
		return func(b *pgx.Batch) {
			inventory.QueueReserve(b, []inventory.Allocation{{UserID: user, PurchaseID: uuid.New(), Picked: pointers(free[12:13]), For: d}}, time.Now(), quota, time.Hour)
		}
	}
	releases := func(h inventory.Hold) func(b *pgx.Batch) {
		return func(b *pgx.Batch) { inventory.QueueRelease(b, []*inventory.Hold{&h}, campaign.Changes{}) }
	}
	expires := func(h inventory.Hold) func(b *pgx.Batch) {
		return func(b *pgx.Batch) { inventory.QueueExpire(b, []*inventory.Hold{&h}, campaign.Changes{}) }
	}
	extends := func(h inventory.Hold, by time.Duration, times int) func(b *pgx.Batch) {
		h.ExpiresAt, h.Extensions = h.ExpiresAt.Add(by), h.Extensions+times
		return func(b *pgx.Batch) { inventory.QueueExtend(b, []*inventory.Hold{&h}, campaign.Changes{}) }
	}
	changes := func(from, to inventory.State, free inventory.FreePosition) func(b *pgx.Batch) {
		return func(b *pgx.Batch) {
			inventory.QueueChange(b, []inventory.Allocation{{CampaignID: id, PurchaseID: buyer, Items: item(free)}}, from, to)
		}
	}
	blocks := func(from inventory.State, free inventory.FreePosition) func(b *pgx.Batch) {
		return func(b *pgx.Batch) {
			inventory.QueueBlocking(b, id, []shape.Position{free.Position}, from, "wheelchair")
		}
	}
	elsewhere := free[13]
	elsewhere.CampaignID = uuid.New()
	wrong := map[string]func(b *pgx.Batch){
		"sell another campaign's": sells(uuid.Nil, 0, elsewhere), "sell what is held by another hold": sells(other.ID, 1, free[0]), "sell what is free to a hold": sells(mine.ID, 0, free[13]),
		"sell another version to its hold": sells(mine.ID, 2, free[0], free[1]), "sell what is held to a hold that is not": sells(uuid.New(), 1, free[0]),
		"hold longer than the user may": hold(5*time.Minute, free[12]), "reserve longer than the user may": reserves(5*time.Minute, "holder"),
		"expire what is not over": expires(mine), "extend by no extension": extends(mine, time.Minute, 0), "extend backwards": extends(mine, -time.Minute, 1), "extend beyond the quota": extends(mine, 24*time.Hour, 1),
		"free the sold of others": changes(inventory.Sold, inventory.Available, free[6]), "free what is not sold": changes(inventory.Sold, inventory.Available, free[5]),
		"sell the reserved of others": changes(inventory.Reserved, inventory.Sold, free[7]), "free what is not reserved": changes(inventory.Reserved, inventory.Available, free[4]),
	}
	for i, state := range map[int]string{0: "held", 4: "sold", 5: "reserved", 8: "blocked", 9: "held and free again", 10: "held at the same version", 11: "reserved at the same version"} {
		wrong["hold what is "+state] = hold(time.Minute, free[13], free[i])
		wrong["sell what is "+state] = sells(uuid.Nil, 0, free[13], free[i])
		if i < 8 {
			wrong["block what is "+state], wrong["unblock what is "+state] = blocks(inventory.Available, free[i]), blocks(inventory.Blocked, free[i])
		}
	}
	if used, let := kept(t, db, time.Hour, free[14]), kept(t, db, time.Hour, free[15]); do(sells(used.ID, 1, slices.Clone(free[14:15])...)) && do(releases(let)) && do(expires(over)) {
		for _, h := range []inventory.Hold{used, let, over} {
			state := string(fixture.HoldNow(t, db, h.ID).State)
			wrong["release what is "+state], wrong["expire what is "+state], wrong["extend what is "+state] = releases(h), expires(h), extends(h, time.Minute, 1)
		}
	}
	if len(wrong) != 15+7*2+3*2+3*3 || !do(func(b *pgx.Batch) { inventory.QueueAddReservedTimes(b, []inventory.Allocation{rested}) }) {
		t.Errorf("%d statements", len(wrong))
	}
	changed := fixture.Watch(t, db)
	for what, queue := range wrong {
		if do(queue) {
			t.Errorf("%s: done", what)
		}
	}
	changed(``)
	if !do(reserves(3*time.Minute, "holder")) || !do(hold(30*time.Minute, free[13])) { // what the quota leaves
		t.Error("what is right is not done")
	}
}
