package recovery

import "context"

// reconciliation compares the next closed day of the provider's balance with our books, and
// closes differences that are none any more. Without a provider no day is compared.
func (s *Sweeper) reconciliation(ctx context.Context) (Counts, error) {
	done, more, err := s.books.Run(ctx)
	counts := Counts{"days": done.Days, "listed": done.Listed, "foreign": done.Foreign, "differences": done.Found, "closed": done.Closed}
	if err == nil && more {
		err = errMore
	}
	return counts, err
}
