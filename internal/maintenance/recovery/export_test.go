package recovery

import "time"

// SetWarnAfter sets how long a campaign stays locked until the log names it.
func (s *Sweeper) SetWarnAfter(d time.Duration) { s.warnAfter = d }
