package main

import (
	"context"
	"fmt"

	"triprize/internal/entry/upkeep"
)

// violations returns what the audit finds.
func (sys *system) violations(ctx context.Context) (wrong []string) {
	violations, err := upkeep.Check(ctx, sys.db, violationsShown)
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

// finish stops the processes and compares the database with what the crowd has seen, whose
// purchases are of so many positions. It returns what is wrong: a broken invariant, different
// numbers of sold positions and purchases, an answer without its purchase, or an accepted job
// that is not final.
func (sys *system) finish(ctx context.Context, seen *observed, each int) ([]string, error) {
	wrong := append(seen.unexpectedAnswers(), sys.stop()...)
	wrong = append(wrong, sys.violations(ctx)...)
	var completed, sold, notFinal, kept int
	err := sys.db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM purchases WHERE state = 'completed'),
		       (SELECT sum(positions_sold) FROM campaigns),
		       (SELECT count(*) FROM jobs WHERE state NOT IN ('succeeded', 'failed')),
		       (SELECT count(*) FROM unnest($1::uuid[]) AS i (id)
		        CROSS JOIN LATERAL (SELECT state FROM jobs WHERE id = i.id) j WHERE j.state = 'succeeded')`, seen.bought).
		Scan(&completed, &sold, &notFinal, &kept)
	if err != nil {
		return nil, fmt.Errorf("finish: %w", err)
	}
	bought, open := seen.whole[succeeded], seen.whole[late]+seen.whole[refused]+seen.whole[unexpected] // open: may have bought or not
	if completed < bought || completed > bought+open {
		wrong = append(wrong, fmt.Sprintf("%d purchases are completed; %d were answered, and %d answers are open", completed, bought, open))
	}
	if sold != each*completed {
		wrong = append(wrong, fmt.Sprintf("%d positions are sold to %d purchases of %d", sold, completed, each))
	}
	if kept != len(seen.bought) {
		wrong = append(wrong, fmt.Sprintf("of %d jobs that were answered as succeeded, %d are so", len(seen.bought), kept))
	}
	if notFinal > open {
		wrong = append(wrong, fmt.Sprintf("%d accepted jobs are not final", notFinal))
	}
	return wrong, nil
}
