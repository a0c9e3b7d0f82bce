package recovery

import "context"

// audit checks the invariants on the next parts of the rows.
func (s *Sweeper) audit(ctx context.Context) (Counts, error) {
	done, err := s.auditor.Run(ctx)
	return Counts{"turns": done.Turns, "looked_at": done.Looked, "found": done.Found, "gone": done.Gone, "unchecked": done.Unchecked}, err
}
