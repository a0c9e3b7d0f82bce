package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// crowd is many concurrent buyers. Each has a connection of its own, buys one position
// after the other, and waits for each final answer.
type crowd struct {
	address   string
	key       string
	campaigns []uuid.UUID // bought from in turn
	size      int
	requests  int64         // of all buyers together; 0: no limit until the window is over
	paid      string        // how purchases are paid, and of how many positions
	payers    int           // how many users buy in turn; 0: every purchase is for a new user
	every     time.Duration // each buys at fixed times so far apart, and counts from them; 0: one after the other
	hasty     int           // each so many-th buyer goes away with its 202; 0: none
}

// crowd returns buyers from all campaigns of the system, who pay externally.
func (sys *system) crowd(size int) *crowd {
	return &crowd{address: sys.address, key: sys.setup.appKey, campaigns: sys.campaigns, size: size, paid: paidExternally}
}

// outcome is how a request ended.
type outcome int

const (
	succeeded  outcome = iota
	soldOut            // a final refusal, of the request or of its job
	late               // 202: not final within the wait
	refused            // 429 or 503: nothing promised
	unexpected         // anything else
	outcomes
)

// observed is what one buyer, or the whole crowd, has seen.
type observed struct {
	whole    [outcomes]int             // in the whole run: compared with the database
	measured [outcomes]int             // answered while the window was open, or due then
	took     [outcomes][]time.Duration // of the measured ones
	bought   []uuid.UUID               // jobs that were answered as succeeded
	sample   string                    // what an unexpected answer looked like
	refusal  time.Time                 // the first final refusal
}

// run lets the crowd buy until the window is over or all requests are made, and returns
// what it has seen. The window ends at the first final refusal.
func (c *crowd) run(ctx context.Context, w *window) *observed {
	var tickets atomic.Int64
	buyers := make([]observed, c.size)
	var group sync.WaitGroup
	for i := range buyers {
		group.Go(func() {
			if err := c.buy(ctx, w, &buyers[i], i, &tickets); err != nil && ctx.Err() == nil {
				buyers[i].sample = err.Error()
				buyers[i].whole[unexpected]++
			}
		})
	}
	group.Wait()
	sum := &observed{}
	for i := range buyers {
		sum.add(&buyers[i])
	}
	return sum
}

// buy is one buyer.
func (c *crowd) buy(ctx context.Context, w *window, seen *observed, number int, tickets *atomic.Int64) error {
	prefer := ""
	if c.hasty > 0 && number%c.hasty == 0 {
		prefer = "respond-async"
	}
	conn, err := dial(ctx, c.address, c.key, prefer)
	if err != nil {
		return err
	}
	defer conn.closeWith(ctx)()
	due := time.Now().Add(c.every * time.Duration(number) / time.Duration(c.size)) // not all at the same moment
	for wait(ctx, time.Until(due), nil); !w.isOver(); wait(ctx, time.Until(due), nil) {
		ticket := tickets.Add(1)
		if c.requests > 0 && ticket > c.requests {
			return nil
		}
		begun := due
		if c.every == 0 {
			begun = time.Now()
		}
		counts, user := w.isOpen(), ""
		if c.payers > 0 {
			user = ownerName(int(ticket) % c.payers)
		}
		a, err := conn.buy(c.campaigns[int(ticket)%len(c.campaigns)], c.paid, user)
		if err != nil {
			return err
		}
		seen.note(w, a, time.Since(begun), c.every > 0 && counts || c.every == 0 && w.isOpen())
		due = due.Add(c.every)
	}
	return nil
}

// sell lets the crowd buy for one window, which ends early when positions run out.
func (c *crowd) sell(ctx context.Context, w *window, measured time.Duration) (seen *observed, err error) {
	err = w.measure(ctx, measured, func() { seen = c.run(ctx, w) })
	return seen, err
}

// note counts one answer.
func (t *observed) note(w *window, a answer, took time.Duration, counts bool) {
	o := a.outcome()
	t.whole[o]++
	if counts {
		t.measured[o]++
		t.took[o] = append(t.took[o], took)
	}
	switch o {
	case succeeded:
		t.bought = append(t.bought, a.job)
	case soldOut:
		if t.refusal.IsZero() {
			t.refusal = time.Now()
		}
		w.end()
	case unexpected:
		t.sample = fmt.Sprintf("%d %s", a.status, a.body)
	}
}

var (
	stateSucceeded = []byte(`"state":"succeeded"`)
	stateFailed    = []byte(`"state":"failed"`)
	codeSoldOut    = []byte(`"code":"sold-out"`)
)

func (a answer) outcome() outcome {
	switch {
	case a.status == 200 && a.job != uuid.Nil && bytes.Contains(a.body, stateSucceeded):
		return succeeded
	case (a.status == 409 || a.status == 200 && bytes.Contains(a.body, stateFailed)) && bytes.Contains(a.body, codeSoldOut):
		return soldOut
	case a.status == 202:
		return late
	case a.status == 429, a.status == 503:
		return refused
	default:
		return unexpected
	}
}

func (t *observed) add(other *observed) {
	for o := range outcomes {
		t.whole[o] += other.whole[o]
		t.measured[o] += other.measured[o]
		t.took[o] = append(t.took[o], other.took[o]...)
	}
	t.bought = append(t.bought, other.bought...)
	t.sample = cmp.Or(t.sample, other.sample)
	if t.refusal.IsZero() || !other.refusal.IsZero() && other.refusal.Before(t.refusal) {
		t.refusal = other.refusal
	}
}

// answered returns how long purchases took that were answered, with 200 or 202, shortest first.
func (t *observed) answered() []time.Duration {
	return slices.Sorted(slices.Values(slices.Concat(t.took[succeeded], t.took[late])))
}

// unexpectedAnswers describes the unexpected answers, if there are any.
func (t *observed) unexpectedAnswers() []string {
	if t.whole[unexpected] == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d unexpected answers, such as: %s", t.whole[unexpected], t.sample)}
}
