package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
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

var codeTaken = []byte(`"code":"position-taken"`)

// holdResults are the answers to requests for holds.
type holdResults struct {
	mu      sync.Mutex
	took    []time.Duration // of the holds that were made while the window was open
	made    int             // of the whole run
	taken   int             // refused, because the position is taken
	samples []string        // other answers
}

func (t *holdResults) note(a answer, took time.Duration, measured bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case a.status == 201:
		t.made++
		if measured {
			t.took = append(t.took, took)
		}
	case a.status == 409 && bytes.Contains(a.body, codeTaken):
		t.taken++
	default:
		t.samples = append(t.samples, fmt.Sprintf("%d %s", a.status, a.body))
	}
}

// unexpectedAnswers describes the unexpected answers, if there are any.
func (t *holdResults) unexpectedAnswers() []string {
	if len(t.samples) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d unexpected answers to holds, such as: %s", len(t.samples), t.samples[0])}
}

// runHolds measures how long the answer to a hold takes at a moderate load: users hold
// chosen positions of a campaign while others buy from it.
func runHolds(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot(measured), func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		c := sys.crowd(shoppers)
		c.every = shopEvery
		w := newWindow(sys.meter())
		seen, holds := &observed{}, &holdResults{}
		loads := []func(){func() { seen = c.run(ctx, w) }}
		for range holders {
			loads = append(loads, func() {
				if err := sys.holdUntilOver(ctx, w, holds, hot(measured).baseLengths[0]); err != nil && ctx.Err() == nil {
					holds.note(answer{body: []byte(err.Error())}, 0, false)
				}
			})
		}
		if err := w.measure(ctx, measured, loads...); err != nil {
			return r, err
		}
		r = newResult(len(holds.took), w.elapsed, holds.took)
		r.note("purchases/s", perSecond(seen.measured[succeeded], w.elapsed))
		r.note("taken", float64(holds.taken))
		r.noteUsage(w, len(holds.took)+seen.measured[succeeded])
		found, err := sys.finish(ctx, seen)
		r.wrong = append(holds.unexpectedAnswers(), found...)
		return r, err
	})
}

// holdUntilOver holds one random position after the other, each for another user, until
// the window is over.
func (sys *system) holdUntilOver(ctx context.Context, w *window, holds *holdResults, base int) error {
	c, err := dial(ctx, sys.address, sys.setup.appKey)
	if err != nil {
		return err
	}
	defer c.closeWith(ctx)()
	for !w.isOver() {
		start := time.Now()
		a, err := c.hold(sys.campaigns[0], randomPosition(base))
		if err != nil {
			return err
		}
		holds.note(a, time.Since(start), w.isOpen())
		wait(ctx, holdEvery-time.Since(start), nil)
	}
	return nil
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
