package holds

import (
	"fmt"
	"time"

	"triprize/internal/domain/shape"
	"triprize/internal/platform/config"
	"triprize/internal/store/inventory"
)

// Turns returns how long one user keeps one position: as long as one hold that is
// extended as often as is allowed, in however many holds and unpaid reservations. After
// that it leaves the position to others for as long as a hold may last.
func Turns(settings config.Holds) inventory.Turns {
	return inventory.Turns{Most: settings.MaxTTL * time.Duration(1+settings.MaxExtensions), Rest: settings.MaxTTL, CoolDown: settings.CoolDown}
}

// again returns when the user of a request may hold a position again for as long as
// it asks, and false if it may now.
func (f *facts) again(r Request, p shape.Position) (again time.Time, wait bool) {
	kept, ok := f.usages[r.user()].kept[p]
	if !ok {
		return again, false
	}
	again = f.turns.Again(kept, r.TTL)
	return again, again.After(f.now)
}

// checkTurns refuses chosen positions that the user must leave to others for a while.
func (f *facts) checkTurns(r Request) error {
	return inventory.RefuseTurns("", r.Positions, f.campaigns[r.Job.CampaignID].Shape, fmt.Sprintf("hold it for %s", r.TTL), func(p shape.Position) (time.Time, bool) { return f.again(r, p) })
}

// millis is RFC 3339 with milliseconds.
const millis = "2006-01-02T15:04:05.000Z07:00"

// avoided counts the positions that a request for any free ones must not get.
func (f *facts) avoided(r Request) (n int) {
	for p := range f.usages[r.user()].kept {
		if _, wait := f.again(r, p); wait {
			n++
		}
	}
	return n
}

// endsBy returns when a hold of positions that begins now must end.
func (f *facts) endsBy(r Request, picked []*inventory.Free) time.Time {
	var times []inventory.HeldTime
	for _, p := range picked {
		if kept, ok := f.usages[r.user()].kept[p.Position]; ok {
			times = append(times, kept)
		}
	}
	return f.turns.EndsBy(f.now, times...)
}
