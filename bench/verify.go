package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/maintenance/audit"
)

// expectation is what must be in the database.
type expectation struct {
	each     int         // positions of a purchase; 0: one
	bought   int         // purchases that were answered as succeeded
	jobs     []uuid.UUID // their jobs, when they are known
	open     int         // requests without a final answer: each may have bought or not
	notFinal int         // jobs that were made and never sold
}

// violations returns what the audit finds.
func (sys *system) violations(ctx context.Context) (wrong []string) {
	violations, err := audit.Check(ctx, sys.db, violationsShown)
	if err != nil {
		return []string{"audit: " + err.Error()}
	}
	for _, found := range violations {
		wrong = append(wrong, found.Invariant+": "+found.Subject)
	}
	return wrong
}

// violationsShown bounds how many rows of one broken invariant are reported.
const violationsShown = 3

// verify returns what is wrong with the database: a broken invariant, different numbers
// of sold positions and purchases, an answer without its purchase, or an accepted job
// that is not final.
func (sys *system) verify(ctx context.Context, want expectation) (wrong []string, err error) {
	wrong = sys.violations(ctx)
	var completed, sold, notFinal, kept int
	err = sys.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM purchases WHERE state = 'completed'),
		       (SELECT sum(positions_sold) FROM campaigns),
		       (SELECT count(*) FROM jobs WHERE state NOT IN ('succeeded', 'failed')),
		       (SELECT count(*) FROM unnest($1::uuid[]) AS i (id)
		        CROSS JOIN LATERAL (SELECT state FROM jobs WHERE id = i.id) j WHERE j.state = 'succeeded')`, want.jobs).
		Scan(&completed, &sold, &notFinal, &kept)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	if completed < want.bought || completed > want.bought+want.open {
		wrong = append(wrong, fmt.Sprintf("%d purchases are completed; %d were answered, and %d answers are open", completed, want.bought, want.open))
	}
	if each := max(want.each, 1); sold != each*completed {
		wrong = append(wrong, fmt.Sprintf("%d positions are sold to %d purchases of %d", sold, completed, each))
	}
	if kept != len(want.jobs) {
		wrong = append(wrong, fmt.Sprintf("of %d jobs that were answered as succeeded, %d are so", len(want.jobs), kept))
	}
	if notFinal > want.notFinal+want.open {
		wrong = append(wrong, fmt.Sprintf("%d accepted jobs are not final", notFinal))
	}
	return wrong, nil
}
