package postgres

import "time"

// SetTimeout sets how long a transaction waits for its turn.
func (g *Gate) SetTimeout(d time.Duration) { g.timeout = d }
