package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/triangle"
)

// A moderate load: a hold every 10 ms and a purchase every 5 ms, as far as they
// are answered in time.
const (
	holders   = 20
	holdEvery = 200 * time.Millisecond // from one hold of a holder to its next
	shoppers  = 40
	shopEvery = 200 * time.Millisecond
)

var codeTaken = []byte(`"code":"position-taken"`)

// holdTally is what was seen of holds.
type holdTally struct {
	mu     sync.Mutex
	took   []time.Duration // of the holds that were made while the window was open
	made   int             // of the whole run
	taken  int             // refused, as the position is gone
	unlike []string        // other answers
}

func (t *holdTally) note(a answer, took time.Duration, measured bool) {
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
		t.unlike = append(t.unlike, fmt.Sprintf("%d %s", a.status, a.body))
	}
}

// strangeness says what nobody expected.
func (t *holdTally) strangeness() []string {
	if len(t.unlike) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d unexpected answers to holds, such as: %s", len(t.unlike), t.unlike[0])}
}

// runHolds lets users hold chosen positions of a campaign that others buy from,
// at a moderate load: how long until a hold is answered.
func runHolds(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
	v, err := s.openSale(ctx, hot(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	if err := v.serve(ctx, 1); err != nil {
		return r, err
	}
	c := &crowd{address: v.address, key: s.appKey, campaigns: v.campaigns, size: shoppers, every: shopEvery}
	w := &window{meter: v.meter()}
	var seen *observed
	holds := &holdTally{}
	var group sync.WaitGroup
	group.Go(func() { seen = c.run(ctx, w, func() {}) })
	for range holders {
		group.Go(func() {
			if err := v.holdOn(ctx, w, holds, hot(measured).baseLengths[0]); err != nil && ctx.Err() == nil {
				holds.note(answer{body: []byte(err.Error())}, 0, false)
			}
		})
	}
	err = w.pass(ctx, measured, nil)
	group.Wait()
	if err != nil {
		return r, err
	}
	r = newResult(len(holds.took), w.elapsed, holds.took)
	r.note("purchases/s", perSecond(seen.measured[succeeded], w.elapsed))
	r.note("taken", float64(holds.taken))
	r.noteUsage(w, len(holds.took)+seen.measured[succeeded])
	found, err := v.finish(ctx, seen)
	r.wrong = append(holds.strangeness(), found...)
	return r, err
}

// holdOn holds one random position after the other, each for another user, until
// the window is over.
func (v *venue) holdOn(ctx context.Context, w *window, holds *holdTally, base int) error {
	c, err := dial(ctx, v.address, v.stage.appKey)
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }() // nothing is on its way
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	for !w.isOver() {
		start := time.Now()
		a, err := c.hold(v.campaigns[0], randomPosition(base))
		if err != nil {
			return err
		}
		holds.note(a, time.Since(start), w.isOpen())
		wait(ctx, holdEvery-time.Since(start), nil)
	}
	return nil
}

// randomPosition is any position of a triangle, each as likely as another.
func randomPosition(base int) triangle.Position {
	for {
		at := triangle.Position{Layer: 1 + rand.IntN(base), Column: 1 + rand.IntN(base)}
		if at.Column <= at.Layer {
			return at
		}
	}
}

// heldOnce says what is wrong when a position that many wanted is not held once.
func (v *venue) heldOnce(ctx context.Context, campaigns []uuid.UUID) ([]string, error) {
	var odd int
	err := v.db.QueryRow(ctx, `
		SELECT count(*) FROM unnest($1::uuid[]) AS c (id)
		WHERE 1 <> (SELECT count(*) FROM holds WHERE campaign_id = c.id)`, campaigns).Scan(&odd)
	if err != nil || odd == 0 {
		return nil, err
	}
	return []string{fmt.Sprintf("in %d of %d campaigns there is not one hold", odd, len(campaigns))}, nil
}
