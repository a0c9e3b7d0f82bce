package main

import (
	"bytes"
	"context"
	"fmt"
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
	payers    int           // how many users pay in turn, each by wallet; 0: every purchase is for a new user
	pairs     string        // how purchases are paid, of pairs; empty: they are of one position
	card      bool          // all pay by card, and every purchase is for a new user
	holdsOf   int           // they hold positions of the triangle with this base instead of buying; 0: they buy
	every     time.Duration // least time from one purchase of a buyer to its next; 0: none
	hasty     bool          // every second buyer goes away with its 202
}

// crowd returns buyers from all campaigns of the system, who pay externally.
func (sys *system) crowd(size int) *crowd {
	return &crowd{address: sys.address, key: sys.setup.appKey, campaigns: sys.campaigns, size: size}
}

// outcome is how a request ended.
type outcome int

const (
	succeeded  outcome = iota
	soldOut            // a final refusal, of the request or of its job
	taken              // a hold was refused
	late               // 202: not final within the wait
	refused            // 503: overloaded, nothing promised
	unexpected         // anything else
	outcomes
)

// observed is what one buyer, or the whole crowd, has seen.
type observed struct {
	whole    [outcomes]int             // in the whole run: compared with the database
	measured [outcomes]int             // while the window was open
	took     [outcomes][]time.Duration // of the measured ones
	bought   []uuid.UUID               // jobs that were answered as succeeded
	samples  []string                  // what unexpected answers looked like
	refusal  time.Time                 // the first final refusal
}

// buyer is one buyer of a crowd.
type buyer struct {
	observed
	crowd   *crowd
	window  *window
	tickets *atomic.Int64
	number  int
}

// run lets the crowd buy until the window is over or all requests are made, and
// returns what it has seen. The window ends at the first final refusal.
func (c *crowd) run(ctx context.Context, w *window) *observed {
	var tickets atomic.Int64
	buyers := make([]*buyer, c.size)
	var group sync.WaitGroup
	for i := range buyers {
		b := &buyer{crowd: c, window: w, tickets: &tickets, number: i}
		buyers[i] = b
		group.Go(func() {
			if err := b.buy(ctx); err != nil && ctx.Err() == nil {
				b.samples = append(b.samples, err.Error())
				b.whole[unexpected]++
			}
		})
	}
	group.Wait()
	sum := &observed{}
	for _, b := range buyers {
		sum.add(&b.observed)
	}
	return sum
}

func (b *buyer) buy(ctx context.Context) error {
	var headers []string
	if b.crowd.hasty && b.number%2 == 1 {
		headers = append(headers, "Prefer: respond-async")
	}
	c, err := dial(ctx, b.crowd.address, b.crowd.key, headers...)
	if err != nil {
		return err
	}
	defer c.closeWith(ctx)()
	wait(ctx, b.crowd.every*time.Duration(b.number)/time.Duration(b.crowd.size), nil) // not all at the same moment
	for !b.window.isOver() {
		ticket := b.tickets.Add(1)
		if b.crowd.requests > 0 && ticket > b.crowd.requests {
			return nil
		}
		start := time.Now()
		a, err := b.purchase(c, int(ticket))
		if err != nil {
			return err
		}
		b.note(b.window, a, time.Since(start))
		wait(ctx, b.crowd.every-time.Since(start), nil)
	}
	return nil
}

// purchase buys with the ticket of that number.
func (b *buyer) purchase(c *connection, ticket int) (answer, error) {
	campaign := b.crowd.campaigns[ticket%len(b.crowd.campaigns)]
	switch {
	case b.crowd.holdsOf > 0:
		return c.hold(campaign, randomPosition(b.crowd.holdsOf))
	case b.crowd.pairs != "":
		return c.buy(campaign, b.crowd.pairs, "")
	case b.crowd.card:
		return c.buy(campaign, paidByCard, "")
	case b.crowd.payers > 0:
		return c.buy(campaign, paidByWallet, ownerName(ticket%b.crowd.payers))
	default:
		return c.buy(campaign, paidExternally, "")
	}
}

// note counts one answer. It is measured when it arrives while the window is open.
func (t *observed) note(w *window, a answer, took time.Duration) {
	o := a.outcome()
	t.whole[o]++
	if w.isOpen() {
		t.measured[o]++
		t.took[o] = append(t.took[o], took)
	}
	switch o {
	case succeeded:
		if a.job != uuid.Nil { // a hold has none
			t.bought = append(t.bought, a.job)
		}
	case soldOut:
		if t.refusal.IsZero() {
			t.refusal = time.Now()
		}
		w.end()
	case unexpected:
		if len(t.samples) < 3 {
			t.samples = append(t.samples, fmt.Sprintf("%d %s", a.status, a.body))
		}
	}
}

var (
	stateSucceeded = []byte(`"state":"succeeded"`)
	stateFailed    = []byte(`"state":"failed"`)
	codeSoldOut    = []byte(`"code":"sold-out"`)
	codeTaken      = []byte(`"code":"position-taken"`)
)

func (a answer) outcome() outcome {
	switch {
	case a.status == 200 && a.job != uuid.Nil && bytes.Contains(a.body, stateSucceeded):
		return succeeded
	case a.status == 201: // a hold
		return succeeded
	case a.status == 409 && bytes.Contains(a.body, codeTaken):
		return taken
	case (a.status == 409 || a.status == 200 && bytes.Contains(a.body, stateFailed)) && bytes.Contains(a.body, codeSoldOut):
		return soldOut
	case a.status == 202:
		return late
	case a.status == 503:
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
	t.samples = append(t.samples, other.samples...)
	if t.refusal.IsZero() || !other.refusal.IsZero() && other.refusal.Before(t.refusal) {
		t.refusal = other.refusal
	}
}

// unexpectedAnswers describes the unexpected answers, if there are any.
func (t *observed) unexpectedAnswers() []string {
	if t.whole[unexpected] == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d unexpected answers, such as: %s", t.whole[unexpected], t.samples[0])}
}
