package sale

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/shape"
	"triprize/internal/store/inventory"
	"triprize/internal/store/purchase"
)

// leastReserved is the least time for which positions are reserved for a card, unless
// every reservation is shorter: a buyer must be able to authenticate.
const leastReserved = 3 * time.Minute

func (r Reservations) least() time.Duration { return min(leastReserved, r.For) }

// queueTurns reads how long the users in kept have kept positions lately.
func (in *inputs) queueTurns(b *pgx.Batch) {
	n := len(in.kept)
	campaigns, users := make([]uuid.UUID, 0, n), make([]string, 0, n)
	for u := range in.kept {
		campaigns, users = append(campaigns, u.CampaignID), append(users, u.ID)
	}
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&in.now) })
	inventory.QueueHeldTimes(b, in.reservations.Turns, campaigns, users, func(t inventory.HeldTime) {
		in.kept[inventory.User{CampaignID: t.CampaignID, ID: t.UserID}].Add(t)
	})
}

// again returns when the buyer may reserve a free position for a card again, and false if
// it may now.
func (in *inputs) again(o *order, p shape.Position) (again time.Time, wait bool) {
	kept, ok := in.kept[o.buyer()][p]
	if !ok || o.Payment.Method != purchase.Card {
		return again, false
	}
	again = in.reservations.Turns.Again(kept, in.reservations.least())
	return again, again.After(in.now)
}

// checkTurns refuses an order by card for chosen positions that its buyer must leave to
// others for a while, before the provider is asked.
func (in *inputs) checkTurns(o *order) error {
	return inventory.RefuseTurns(selectionAt, o.Selection.Positions, in.campaigns[o.campaignID].Shape, "reserve it for a card", func(p shape.Position) (time.Time, bool) { return in.again(o, p) })
}

// avoid tells which random positions an order must not get; nil: none.
func (in *inputs) avoid(o *order) func(shape.Position) bool {
	if len(in.kept[o.buyer()]) == 0 {
		return nil
	}
	return func(p shape.Position) bool { _, wait := in.again(o, p); return wait }
}

// avoided counts them.
func (in *inputs) avoided(o *order) (n int) {
	for p := range in.kept[o.buyer()] {
		if _, wait := in.again(o, p); wait {
			n++
		}
	}
	return n
}

// reservedFor returns how long the positions of an order by card are reserved: for as long
// as its buyer may still keep them all. heldSince is when the hold was made that has kept
// them, zero if there was none. A hold is bought however old it is: its buyer pays just
// now. That cannot be repeated, because all of it counts against the next hold.
func (in *inputs) reservedFor(o *order, picked []*inventory.Free, heldSince time.Time) time.Duration {
	began := in.now
	if !heldSince.IsZero() {
		began = heldSince
	}
	var times []inventory.HeldTime
	for _, f := range picked {
		if kept, ok := in.kept[o.buyer()][f.Position]; ok {
			times = append(times, kept)
		}
	}
	left := in.reservations.Turns.EndsBy(began, times...).Sub(in.now)
	return min(in.reservations.For, max(left, in.reservations.least()))
}
