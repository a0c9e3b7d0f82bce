package postgres

import "time"

// SetTimeout sets how long a transaction waits for its turn.
func (g *Gate) SetTimeout(d time.Duration) { g.timeout = d }

// PlanAnew is the hook for connections that are about to be used.
var PlanAnew = planAnew
