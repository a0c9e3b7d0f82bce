package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
)

// holdCrowd measures 500 concurrent requests to hold the same position, again and again,
// with the lock in Redis or without.
type holdCrowd struct{ locks bool }

// Names of figures; each value is for one crowd.
const (
	transactionsOfCrowd = "transactions a crowd"
	rowsOfCrowd         = "rows written a crowd"
	timeOfCrowd         = "ms a crowd"
	postgresOfCrowd     = "µs of postgres' cpu a crowd"
)

// crowds is the number of campaigns, one for each crowd: more than the longest
// measurement needs.
const crowds = 400

func wanted() offer {
	return offer{name: "template_wanted", baseLengths: slices.Repeat([]int{4}, crowds)}
}

func (h holdCrowd) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, wanted(), func(sys *system) (result, error) { return h.measure(ctx, sys, measured) })
}

func (h holdCrowd) measure(ctx context.Context, sys *system, measured time.Duration) (r result, err error) {
	before, err := sys.activity(ctx)
	if err != nil {
		return r, err
	}
	if err := sys.serveUnswept(ctx, 0, "TRIPRIZE_LOCKS_ENABLED="+strconv.FormatBool(h.locks)); err != nil {
		return r, err
	}
	clients, err := sys.dialAll(ctx, connections)
	if err != nil {
		return r, err
	}
	seen, w := make([]observed, len(clients)), newWindow(sys.meter())
	took, latencies, done := runCrowds(ctx, clients, sys.campaigns, w, measured, seen)
	var all observed
	for i, c := range clients {
		all.add(&seen[i])
		_ = c.conn.Close() // nothing is on its way
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	r = newResult(len(latencies), w.elapsed, latencies)
	r.wrong = append(all.unexpectedAnswers(), sys.stop()...) // the database counts when connections end
	after, err := sys.activity(ctx)
	if err != nil {
		return r, err
	}
	slices.Sort(took)
	r.note(timeOfCrowd, milliseconds(quantile(took, 50)))
	r.note(transactionsOfCrowd, float64(after.transactions-before.transactions)/float64(done))
	r.note(rowsOfCrowd, float64(after.rows-before.rows)/float64(done))
	if n := len(took); n > 0 {
		r.note(postgresOfCrowd, w.cores("postgres")*w.elapsed.Seconds()*1e6/float64(n))
	}
	r.noteUsage(w, len(latencies))
	odd, err := sys.heldOnce(ctx, sys.campaigns[:done])
	if err != nil {
		return r, err
	}
	if made := all.whole[succeeded]; made != done {
		odd = append(odd, fmt.Sprintf("%d of %d crowds' positions were given away", made, done))
	}
	found, err := sys.verify(ctx, expectation{})
	r.wrong = append(append(r.wrong, odd...), found...)
	return r, err
}

// dialAll opens n connections.
func (sys *system) dialAll(ctx context.Context, n int) (clients []*connection, err error) {
	for range n {
		c, err := dial(ctx, sys.address, sys.setup.appKey)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// runCrowds lets all clients request the same position of a campaign, one campaign
// after the other. It returns how long each crowd and each request took while the window
// was open, and how many crowds there were in the whole run.
func runCrowds(ctx context.Context, clients []*connection, campaigns []uuid.UUID, w *window, measured time.Duration, seen []observed) (took, latencies []time.Duration, done int) {
	start, closed := time.Now(), func() {}
	for _, id := range campaigns {
		if !w.isOpen() && time.Since(start) >= warmUp(measured) {
			closed = w.open()
		}
		if ctx.Err() != nil || time.Since(start) >= warmUp(measured)+measured {
			break
		}
		begun, of := time.Now(), make([]time.Duration, len(clients))
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				a, err := c.hold(id, shape.Position{Layer: 3, Column: 2})
				if err != nil {
					a = answer{body: []byte(err.Error())}
				}
				of[i] = time.Since(begun)
				seen[i].note(w, a, of[i])
			})
		}
		all.Wait()
		done++
		if w.isOpen() {
			took, latencies = append(took, time.Since(begun)), append(latencies, of...)
		}
	}
	closed()
	return took, latencies, done
}

// activity is what a database has done so far.
type activity struct{ transactions, rows int }

// settled is how long the counters of a database must stay the same to be final: they
// are written when connections end.
const settled = 500 * time.Millisecond

// activity reads the counters of the system's database when they no longer change.
func (sys *system) activity(ctx context.Context) (now activity, err error) {
	for last := (activity{-1, -1}); ; last = now {
		err = sys.db.QueryRow(ctx, `
			SELECT xact_commit + xact_rollback, tup_inserted + tup_updated + tup_deleted
			FROM pg_stat_database WHERE datname = current_database()`).Scan(&now.transactions, &now.rows)
		if err != nil {
			return now, fmt.Errorf("activity: %w", err)
		}
		if now.rows == last.rows && now.transactions-last.transactions <= 2 { // this query itself
			return now, nil
		}
		if wait(ctx, settled, nil); ctx.Err() != nil {
			return now, ctx.Err()
		}
	}
}
