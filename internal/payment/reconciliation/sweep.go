package reconciliation

import (
	"context"
	"time"

	"triprize/internal/platform/sweep"
)

// Sweep is the sweep reconciliation: it compares the next closed day of the provider's balance with
// our books, and closes discrepancies that are none any more. Without a provider no day is compared.
func (r *Reconciler) Sweep() sweep.Sweep {
	return sweep.Sweep{Name: "reconciliation", Every: 10 * time.Minute, Interruptible: true, Counts: []string{"days", "listed", "foreign", "discrepancies", "closed"},
		Run: func(ctx context.Context, run sweep.Run) error {
			done, more, err := r.Run(ctx)
			run.Counts["days"], run.Counts["listed"], run.Counts["foreign"] = done.Days, done.Listed, done.Foreign
			run.Counts["discrepancies"], run.Counts["closed"] = done.Found, done.Closed
			if err == nil && more {
				err = sweep.ErrMore
			}
			return err
		}}
}
