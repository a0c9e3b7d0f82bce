package progress

import "time"

// SetTicks replaces the interval between two reads by ticks that a test sends.
func (w *Campaigns) SetTicks(ticks <-chan time.Time) { w.ticks = ticks }

// SetTimeout sets how long one query may take.
func (w *Campaigns) SetTimeout(d time.Duration) { w.timeout = d }
