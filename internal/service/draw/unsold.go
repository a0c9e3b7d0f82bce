package draw

import (
	"fmt"
	"time"

	"triprize/internal/store/drawrecord"
)

// checkEnd returns an error unless a list that is not of all positions is frozen after the
// end of the sale that the rules name: verifiers refuse any other. The sale was ended by
// the same clock, so what is too early is frozen when the clock has gone on.
func (a *attempt) checkEnd(f drawrecord.Freeze, now time.Time) error {
	positions := 0
	for _, layer := range a.rules.Layers {
		positions += layer.Positions
	}
	switch {
	case f.Count == positions:
		return nil
	case f.Count > positions || a.rules.Unsold == nil:
		return fmt.Errorf("draw.freeze(%s): %d of %d positions are sold, and the rules want all of them", a.ref.CampaignID, f.Count, positions)
	case f.FrozenAt.Before(a.rules.Unsold.EndsAt.Time):
		return waiting("the clock is behind the end of the sale: nothing can be frozen yet", now, clamp(a.rules.Unsold.EndsAt.Sub(now), firstRetry, longestRetry))
	}
	return nil
}
