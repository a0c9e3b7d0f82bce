package audit

import (
	"context"
	"time"

	"triprize/internal/platform/sweep"
)

// Sweep is the sweep audit: it checks the invariants on the next parts of the rows.
func (a *Auditor) Sweep() sweep.Sweep {
	return sweep.Sweep{Name: "audit", Every: 10 * time.Second, Interruptible: true, Counts: []string{"passes", "checked", "found", "gone", "unchecked"},
		Run: func(ctx context.Context, run sweep.Run) error {
			done, err := a.Run(ctx)
			run.Counts["passes"], run.Counts["checked"], run.Counts["found"] = done.Passes, done.Checked, done.Found
			run.Counts["gone"], run.Counts["unchecked"] = done.Gone, done.Unchecked
			return err
		}}
}
