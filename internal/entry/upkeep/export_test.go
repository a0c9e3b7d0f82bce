package upkeep

import "time"

// Walks are the walks of an auditor.
var Walks = walks

// SetWarnAfter sets how long a campaign stays locked until the log names it.
func (s *Sweeper) SetWarnAfter(d time.Duration) { s.resumer.WarnAfter = d }
