package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// deliveredAfterwards is how many events are delivered a second when the crowd has gone.
const deliveredAfterwards = "delivered/s afterwards"

// longestDelivery bounds the wait for what was not delivered when the sale was over.
const longestDelivery = 5 * time.Minute

// runEventSale measures purchases of an app that receives an event for each: how much it sells a
// second, how many events its one healthy receiver gets meanwhile, and how many afterwards.
func runEventSale(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot, func(sys *system) (r result, err error) {
		var arrived atomic.Int64
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
		defer receiver.Close()
		if err := sys.listen(ctx, receiver.URL); err != nil {
			return r, err
		}
		if err := sys.serve(ctx, 1, "TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8"); err != nil {
			return r, err
		}
		w, began := newWindow(sys.meter()), time.Now()
		seen, err := sys.crowd(connections).sell(ctx, w, measured)
		if err != nil {
			return r, err
		}
		meanwhile, took := arrived.Load(), time.Since(began)
		r = w.result(seen)
		r.note("delivered/s meanwhile", perSecond(int(meanwhile), took))
		began = time.Now()
		left := 1
		for end := began.Add(longestDelivery); left > 0 && time.Now().Before(end); wait(ctx, 10*time.Millisecond, nil) {
			if err := sys.db.QueryRow(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`).Scan(&left); err != nil {
				return r, err
			}
		}
		r.note(deliveredAfterwards, perSecond(int(arrived.Load()-meanwhile), time.Since(began)))
		r.noteUsage(w, seen.measured[succeeded])
		r.wrong, err = sys.finish(ctx, seen, 1)
		if left > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%d events were not delivered", left))
		}
		return r, err
	})
}

// listen makes an endpoint for every event of the bench's client.
func (sys *system) listen(ctx context.Context, url string) error {
	keys, err := keyring.Parse(sys.setup.drawKey, "")
	if err != nil {
		return err
	}
	id, now := uuidv7.New(), time.Now()
	return postgres.InTx(ctx, sys.db, func(tx pgx.Tx) error {
		_, err := webhook.Create(ctx, tx, webhook.Endpoint{ID: id, Client: "bench", URL: url, Events: []string{"*"}, VerifiedAt: &now},
			webhook.Seal(keys, id, sender.NewSecret()), 1)
		return err
	})
}
