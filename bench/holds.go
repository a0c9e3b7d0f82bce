package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
)

// A moderate load: a hold every 10 ms and a purchase every 5 ms, while answers are
// fast enough.
const (
	holders   = 20
	holdEvery = 200 * time.Millisecond // from one hold of a holder to its next
	shoppers  = 40
	shopEvery = 200 * time.Millisecond
)

// runHolds measures how long the answer to a hold takes at a moderate load: users hold
// chosen positions of a campaign while others buy from it.
func runHolds(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot(measured), func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		buyers, holding := sys.crowd(shoppers), sys.crowd(holders)
		buyers.every, holding.every, holding.holdsOf = shopEvery, holdEvery, hot(measured).baseLengths[0]
		w := newWindow(sys.meter())
		var seen, holds *observed
		if err := w.measure(ctx, measured, func() { seen = buyers.run(ctx, w) }, func() { holds = holding.run(ctx, w) }); err != nil {
			return r, err
		}
		r = newResult(holds.measured[succeeded], w.elapsed, holds.took[succeeded])
		r.note("purchases/s", perSecond(seen.measured[succeeded], w.elapsed))
		r.note("taken", float64(holds.whole[taken]))
		r.noteUsage(w, holds.measured[succeeded]+seen.measured[succeeded])
		found, err := sys.finish(ctx, seen, 1)
		r.wrong = append(holds.unexpectedAnswers(), found...)
		return r, err
	})
}

// randomPosition returns a random position of a triangle; all are equally likely.
func randomPosition(base int) shape.Position {
	for {
		at := shape.Position{Layer: 1 + rand.IntN(base), Column: 1 + rand.IntN(base)}
		if at.Column <= at.Layer {
			return at
		}
	}
}

// heldOnce checks that each of the campaigns has exactly one hold.
func (sys *system) heldOnce(ctx context.Context, campaigns []uuid.UUID) ([]string, error) {
	var odd int
	err := sys.db.QueryRow(ctx, `
		SELECT count(*) FROM unnest($1::uuid[]) AS c (id)
		WHERE 1 <> (SELECT count(*) FROM holds WHERE campaign_id = c.id)`, campaigns).Scan(&odd)
	if err != nil || odd == 0 {
		return nil, err
	}
	return []string{fmt.Sprintf("in %d of %d campaigns there is not one hold", odd, len(campaigns))}, nil
}
