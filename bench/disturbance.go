package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// disturbance measures purchases in a quiet campaign, 40 a second at fixed times, alone and
// while something else goes on, in one run and on the same processes.
type disturbance struct {
	workers   int                                           // default 1
	campaigns int                                           // others than the quiet one; default 1
	wallets   int                                           // in the tables
	lasting   time.Duration                                 // how long it goes on; default: as long as is measured
	disturb   func(ctx context.Context, d *disturber) error // until ctx ends
}

// disturber is what goes on beside the quiet campaign, and what came of it.
type disturber struct {
	sys   *system
	noisy []uuid.UUID // campaigns

	orders  *observed          // see orderLocked
	figures map[string]float64 // of the disturbance
	answers [6]atomic.Int64    // by the first digit of the status; 0: there was none
}

// Names of figures.
const (
	disturbedP95  = "p95, disturbed / quiet"
	apiPeak       = mostMiB + "api"
	messagesAfter = "messages 5 s after"
	finalAfter    = "seconds until final"
)

const (
	quietBase   = 200 // of two campaigns: 20,100 positions, more than anybody buys
	quietBuyers = 16
	quietEvery  = 400 * time.Millisecond // from one purchase of a buyer to its next
)

func (one disturbance) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	bases := []int{quietBase, quietBase}
	if one.campaigns > 1 {
		bases = append(bases[:1], slices.Repeat([]int{20}, one.campaigns)...)
	}
	o := offer{fmt.Sprintf("template_quiet_%d_%d", len(bases), one.wallets), bases,
		func(ctx context.Context, db *pgxpool.Pool) error { return fund(ctx, db, owners(one.wallets)) }}
	return s.onSale(ctx, o, func(sys *system) (result, error) { return one.measure(ctx, sys, measured) })
}

func (one disturbance) measure(ctx context.Context, sys *system, measured time.Duration) (r result, err error) {
	if err := sys.serve(ctx, max(one.workers, 1)); err != nil {
		return r, err
	}
	d := &disturber{sys: sys, noisy: sys.campaigns[1:], orders: &observed{}}
	c := sys.crowd(quietBuyers)
	c.campaigns, c.every = sys.campaigns[:1], quietEvery
	quiet, err := c.sell(ctx, newWindow(nil), measured)
	if err != nil {
		return r, err
	}
	busy, end := context.WithCancel(ctx)
	defer end()
	var failed error
	var group sync.WaitGroup
	group.Go(func() { failed = one.disturb(busy, d) })
	w, lasting := newWindow(sys.meter()), max(measured, one.lasting)
	disturbed, err := c.sell(ctx, w, lasting)
	end()
	group.Wait()
	if err = errors.Join(err, failed); err != nil {
		return r, err
	}
	before, during := quiet.answered(), disturbed.answered()
	r = newResult(len(during), w.elapsed, during)
	was := milliseconds(quantile(before, 95))
	r.note("quiet p95 ms", was)
	r.note(disturbedP95, divide(r.figures[p95], was))
	r.note("refused, or not final", float64(disturbed.whole[refused]+disturbed.whole[late]))
	for digit := range d.answers {
		if count := d.answers[digit].Load(); count > 0 {
			r.note(fmt.Sprintf("stranger's %dxx/s", digit), perSecond(int(count), w.elapsed))
		}
	}
	maps.Copy(r.figures, d.figures)
	r.noteUsage(w, len(during))
	r.wrong = append(quiet.unexpectedAnswers(), disturbed.unexpectedAnswers()...)
	r.wrong = slices.Concat(r.wrong, d.orders.unexpectedAnswers(), sys.stop(), sys.violations(ctx))
	return r, nil
}

// path is that of the other caller's campaign.
func (d *disturber) path(rest string) string { return "/v1/campaigns/" + d.noisy[0].String() + rest }

// hammer sends requests on n connections until ctx ends: on each one after the other, one
// every so often; 0 is at once. A connection that was closed is opened again.
func (d *disturber) hammer(ctx context.Context, n int, every time.Duration, key, method, path, body string) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			wait(ctx, every*time.Duration(i)/time.Duration(n), nil)
			for ; ctx.Err() == nil; wait(ctx, every+10*time.Millisecond, nil) {
				c, err := dial(ctx, d.sys.address, key, "")
				if err != nil {
					continue
				}
				closed := c.closeWith(ctx)
				for err == nil && ctx.Err() == nil {
					start := time.Now()
					var a answer
					a, err = c.send(method, path, body)
					if ctx.Err() == nil {
						d.answers[min(a.status/100, 5)].Add(1)
					}
					wait(ctx, every-time.Since(start), nil)
				}
				closed()
			}
		})
	}
	group.Wait()
}

// cancelOne cancels one purchase again and again, on 200 connections, each time with a fresh key.
func cancelOne(every time.Duration) func(ctx context.Context, d *disturber) error {
	return func(ctx context.Context, d *disturber) error {
		bought, err := d.sys.buyOne(ctx, d.noisy[0], d.sys.setup.otherKey)
		if err == nil {
			d.hammer(ctx, 200, every, d.sys.setup.otherKey, "POST", "/v1/purchases/"+bought.Result.PurchaseID.String()+"/cancel", "")
		}
		return err
	}
}

// readCampaign reads a campaign as fast as it can, on 200 connections, with the key of an app or without.
func readCampaign(byApp bool) func(ctx context.Context, d *disturber) error {
	return func(ctx context.Context, d *disturber) error {
		key := ""
		if byApp {
			key = d.sys.setup.otherKey
		}
		d.hammer(ctx, 200, 0, key, "GET", d.path(""), "")
		return nil
	}
}

// releaseHolds holds positions and releases them at once, again and again, on 200 connections.
func releaseHolds(ctx context.Context, d *disturber) error {
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			c, err := dial(ctx, d.sys.address, d.sys.setup.otherKey, "")
			if err != nil {
				return
			}
			defer c.closeWith(ctx)()
			body := fmt.Sprintf(`{"user_id":"somebody-%d","positions":[{"layer":%d,"column":%d}]}`, i, quietBase-i/100, i%100+1)
			for err == nil && ctx.Err() == nil {
				var held struct{ ID uuid.UUID }
				var a answer
				if a, err = c.send("POST", d.path("/holds"), body); err == nil {
					d.answers[min(a.status/100, 5)].Add(1)
					err = json.Unmarshal(a.body, &held)
				}
				if err == nil {
					_, err = c.send("DELETE", "/v1/holds/"+held.ID.String(), "")
				}
			}
		})
	}
	group.Wait()
	return nil
}

// orderLocked orders so many times a second, from the campaigns in turn, while they are
// locked, or the wallets that pay. Then it counts what is left, and how long the jobs take.
type orderLocked struct{ each, payers int }

func (o orderLocked) run(ctx context.Context, d *disturber) error {
	c := d.sys.crowd(o.each)
	c.campaigns, c.every, c.hasty, c.payers = d.noisy, time.Second, 1, o.payers
	statement, args := `SELECT id FROM campaigns WHERE id = ANY ($1) FOR UPDATE`, []any{d.noisy}
	if o.payers > 0 {
		c.paid, statement, args = paidByWallet, `SELECT id FROM wallets FOR UPDATE`, nil
	}
	w := newWindow(nil)
	defer context.AfterFunc(ctx, func() { w.phase.Store(over) })()
	err := pgx.BeginFunc(context.WithoutCancel(ctx), d.sys.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		if err == nil {
			d.orders = c.run(context.WithoutCancel(ctx), w)
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.afterLock(context.WithoutCancel(ctx), time.Now())
}

// longestBacklog bounds the wait for jobs of what was locked.
const longestBacklog = time.Minute

func (d *disturber) afterLock(ctx context.Context, released time.Time) error {
	final := time.Duration(0)
	for since := time.Duration(0); final == 0 || since < 5*time.Second; wait(ctx, 50*time.Millisecond, nil) {
		var open int
		if err := d.sys.db.QueryRow(ctx, `SELECT count(*) FROM jobs WHERE state NOT IN ('succeeded', 'failed')`).Scan(&open); err != nil {
			return err
		}
		if since = time.Since(released); open == 0 && final == 0 {
			final = since
		}
		if since > longestBacklog {
			return fmt.Errorf("%d jobs are not final %s after the release", open, longestBacklog)
		}
	}
	var messages int
	err := d.sys.db.QueryRow(ctx, `SELECT count(*) FROM outbox_messages`).Scan(&messages)
	d.figures = map[string]float64{messagesAfter: float64(messages), finalAfter: final.Seconds(), "ordered meanwhile": float64(d.orders.whole[late])}
	return err
}

// posting sends purchases with a body, on 8 connections.
func posting(body string) func(ctx context.Context, d *disturber) error {
	return func(ctx context.Context, d *disturber) error {
		d.hammer(ctx, 8, 0, d.sys.setup.otherKey, "POST", d.path("/purchases"), body)
		return nil
	}
}
