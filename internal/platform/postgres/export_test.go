package postgres

import "time"

// SetPatience sets how long a transaction waits for its turn.
func (g *Gate) SetPatience(d time.Duration) { g.patience = d }
