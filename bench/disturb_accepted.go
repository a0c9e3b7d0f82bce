package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The requests of these callers are accepted: they are work for Postgres and the workers.

// buyAnother buys what cancelOne cancels.
func buyAnother(ctx context.Context, d *disturber) error {
	bought, err := d.sys.buyOne(ctx, d.sys.campaigns[noisyCampaign])
	d.purchase = bought.Result.PurchaseID
	return err
}

// cancelOne cancels one purchase 600 times a second, on 200 connections, each time with
// a fresh key.
func cancelOne(ctx context.Context, d *disturber) {
	d.hammer(ctx, 200, time.Second/3, func() []byte {
		return d.request(http.MethodPost, "/v1/purchases/"+d.purchase.String()+"/cancel", d.app(), "")
	})
}

// floodCancellations cancels one purchase as fast as it can, on 200 connections, with
// another client's key.
func floodCancellations(ctx context.Context, d *disturber) {
	d.hammer(ctx, 200, 0, func() []byte {
		return d.request(http.MethodPost, "/v1/purchases/"+d.purchase.String()+"/cancel", d.app(), "")
	})
}

// heldAtOnce is the number of holds that are released at once.
const heldAtOnce = 200

// holdAll holds heldAtOnce positions, each for another user.
func holdAll(ctx context.Context, d *disturber) error {
	d.holds = d.holds[:0]
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range heldAtOnce {
		group.Go(func() {
			at := noisyBase - i/100 // the last two layers
			body := fmt.Sprintf(`{"user_id":"somebody-%d","positions":[{"layer":%d,"column":%d}]}`, i, at, i%100+1)
			var made struct{ ID uuid.UUID }
			if err := d.ask(ctx, d.request(http.MethodPost, d.noisy()+"/holds", d.app(), body), &made); err == nil && made.ID != uuid.Nil {
				mu.Lock()
				d.holds = append(d.holds, made.ID)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(d.holds) == 0 && ctx.Err() == nil {
		return fmt.Errorf("none of %d holds was made", heldAtOnce)
	}
	return nil
}

// releaseHolds holds and releases, all at once, again and again.
func releaseHolds(ctx context.Context, d *disturber) {
	for ctx.Err() == nil {
		if err := holdAll(ctx, d); err != nil {
			return
		}
		d.release(ctx)
	}
}

// release releases all holds at once and waits for the answers.
func (d *disturber) release(ctx context.Context) {
	var group sync.WaitGroup
	for _, id := range d.holds {
		group.Go(func() { _ = d.ask(ctx, d.request(http.MethodDelete, "/v1/holds/"+id.String(), d.app(), ""), nil) })
	}
	group.Wait()
}

// lockAndRelease locks the noisy campaign, as a long transaction of somebody would, and
// sends releases meanwhile.
func lockAndRelease(ctx context.Context, d *disturber) {
	tx, err := d.sys.db.Begin(ctx)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var id uuid.UUID
	err = tx.QueryRow(ctx, `SELECT id FROM campaigns WHERE id = $1 FOR UPDATE`, d.sys.campaigns[noisyCampaign]).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return
	}
	d.release(ctx)
	<-ctx.Done()
}

// keepSelling sells positions of the noisy campaign until the scenario is over, 100 a
// second.
func keepSelling(ctx context.Context, d *disturber) error {
	c := d.sys.crowd(20)
	c.campaigns, c.every = d.sys.campaigns[noisyCampaign:], 200*time.Millisecond
	d.group.Go(func() { c.run(ctx, newWindow(nil)) })
	return nil
}

// cardBuyers is how many buy by card at once, while the provider needs slowProvider for
// each call.
const (
	cardBuyers   = 300
	slowProvider = 2 * time.Second
)

// buyByCard lets cardBuyers buy by card, all at once. Whose purchase has ended buys again.
func buyByCard(ctx context.Context, d *disturber) {
	w := newWindow(nil)
	defer context.AfterFunc(ctx, func() { w.phase.Store(over) })()
	c := d.sys.crowd(cardBuyers)
	c.campaigns, c.card = d.sys.campaigns[noisyCampaign:], true
	seen := c.run(ctx, w)
	d.odd = append(d.odd, seen.unexpectedAnswers()...)
}

// oldRecords measures purchases while the scheduler deletes a million expired jobs, and how
// many it deletes.
var oldRecords = disturbance{expired: expiredJobs, disturb: deleteExpired, after: awaitDeleted}

const expiredJobs = 1_000_000

// deletedEach is the figure with the rate of the sweep.
const deletedEach = "jobs deleted/s"

// longestSweep is more time than the sweep may take.
const longestSweep = 3 * time.Minute

func deleteExpired(_ context.Context, d *disturber) {
	d.began = time.Now()
	if _, err := d.sys.fleet.StartScheduler(); err != nil {
		d.odd = append(d.odd, err.Error())
	}
}

func awaitDeleted(ctx context.Context, d *disturber, r *result) error {
	if err := d.sys.awaitSwept(ctx, d.began.Add(longestSweep)); err != nil {
		r.wrong = append(r.wrong, err.Error())
	}
	r.note(deletedEach, perSecond(expiredJobs, time.Since(d.began)))
	return nil
}

// awaitSwept waits until there are no expired jobs.
func (sys *system) awaitSwept(ctx context.Context, deadline time.Time) error {
	for {
		var left bool // the newest is deleted last
		err := sys.db.QueryRow(ctx, `SELECT (SELECT expires_at FROM jobs WHERE expires_at < now() ORDER BY expires_at DESC LIMIT 1) IS NOT NULL`).Scan(&left)
		switch {
		case err != nil:
			return err
		case !left:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("expired jobs are left after %s", longestSweep)
		}
		wait(ctx, time.Second/4, nil)
	}
}
