package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What these strangers send is accepted, and is work for Postgres and the workers.

// buyOne buys what cancelOne cancels.
func buyOne(ctx context.Context, d *disturber) error {
	c, err := dial(ctx, d.sys.address, d.sys.setup.appKey)
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }() // nothing is on its way
	a, err := c.purchase(d.sys.campaigns[noisyCampaign], "")
	if err != nil {
		return err
	}
	var bought struct {
		Result struct {
			PurchaseID uuid.UUID `json:"purchase_id"`
		}
	}
	err = json.Unmarshal(a.body, &bought)
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

// heldAtOnce is the number of holds that are released at once.
const heldAtOnce = 200

// holdAll holds heldAtOnce positions, each for another user.
func holdAll(ctx context.Context, d *disturber) error {
	d.holds = d.holds[:0]
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range heldAtOnce {
		group.Go(func() {
			at := strangerBase - i/100 // the last two layers
			body := fmt.Sprintf(`{"user_id":"stranger-%d","positions":[{"layer":%d,"column":%d}]}`, i, at, i%100+1)
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
	c := &crowd{address: d.sys.address, key: d.sys.setup.appKey, campaigns: d.sys.campaigns[noisyCampaign:], size: 20, every: 200 * time.Millisecond}
	w := &window{}
	d.group.Go(func() { c.run(ctx, w, func() {}) })
	return nil
}
