package drawing

import "time"

// SetClock sets the clock that tells how long questions take and relays are away.
func (d *Drawer) SetClock(now func() time.Time) { d.questions.now = now }

// MostAway is for how many chains it is known that their relays are away.
const MostAway = mostAway

// KnownAway counts the chains whose relays are away.
func (d *Drawer) KnownAway() int {
	d.questions.mu.Lock()
	defer d.questions.mu.Unlock()
	return len(d.questions.away)
}
