package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// yardstick is a moderate number of purchases in one campaign: buyers who each buy at
// fixed times, however long the purchases before took. A purchase that begins late
// because the one before was slow counts from when it should have begun.
type yardstick struct {
	address  string
	key      string
	campaign uuid.UUID
	heard    *hearing // what is measured are its events; nil: the purchases
}

// Sixteen buyers, each every 400 ms: 40 purchases a second.
const (
	yardstickBuyers = 16
	yardstickEvery  = 400 * time.Millisecond
)

// longestTail is how long after the measurement a purchase may take. One that takes
// longer counts with the time until then.
const longestTail = 8 * time.Second

// observedPurchases is what the buyers of a yardstick have seen.
type observedPurchases struct {
	took       []time.Duration // of the answered ones, and of the unanswered ones so far
	unanswered int
	refused    int // with 429 or 503, or the connection was closed
}

// measure buys for a while and waits for the answers.
func (y yardstick) measure(ctx context.Context, measured time.Duration) (sum observedPurchases, err error) {
	start := time.Now()
	end := start.Add(measured)
	patient, cancel := context.WithDeadline(ctx, end.Add(longestTail))
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range yardstickBuyers {
		group.Go(func() {
			one, failed := y.buy(patient, start.Add(time.Duration(i)*yardstickEvery/yardstickBuyers), end)
			mu.Lock()
			defer mu.Unlock()
			sum.took = append(sum.took, one.took...)
			sum.refused, sum.unanswered = sum.refused+one.refused, sum.unanswered+one.unanswered
			if failed != nil {
				err = failed
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return sum, ctx.Err()
	}
	if y.heard != nil {
		sum.took = y.heard.of(ctx, len(sum.took))
	}
	return sum, err
}

// buy is one buyer.
func (y yardstick) buy(ctx context.Context, first, end time.Time) (seen observedPurchases, err error) {
	var c *connection
	defer func() {
		if c != nil {
			_ = c.conn.Close()
		}
	}()
	for due := first; due.Before(end); due = due.Add(yardstickEvery) {
		wait(ctx, time.Until(due), nil)
		var a answer
		if c == nil {
			if c, err = dial(ctx, y.address, y.key); err == nil {
				conn := c.conn
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			}
		}
		if err == nil {
			a, err = c.buy(y.campaign, paidExternally, "")
		}
		took := time.Since(due)
		switch {
		case ctx.Err() != nil:
			seen.took, seen.unanswered = append(seen.took, took), seen.unanswered+1
		case err != nil, a.status == 429, a.status == 503:
			seen.refused++
		case a.outcome() == succeeded, a.outcome() == late:
			seen.took = append(seen.took, took)
		default:
			return seen, fmt.Errorf("a purchase in a quiet campaign: %d %s", a.status, a.body)
		}
		if err != nil && c != nil {
			_ = c.conn.Close()
			c = nil
		}
		err = nil
	}
	return seen, nil
}
