package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/service/webhooks"
	"triprize/internal/store/webhook"
)

// The figures of eventSale.
const (
	toldMeanwhile  = "told/s meanwhile"
	toldAfterwards = "told/s afterwards"
)

// longestDelivery bounds the wait for what was not delivered when the sale was over.
const longestDelivery = 5 * time.Minute

// eventSale is a crowdedSale of an app that is told of every purchase: how much it sells a
// second, how many events its one healthy receiver gets meanwhile, and how many when the
// crowd has gone.
func eventSale(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot(measured), func(sys *system) (r result, err error) {
		var arrived atomic.Int64
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			_, _ = io.Copy(io.Discard, request.Body)
			arrived.Add(1)
		}))
		defer receiver.Close()
		if err := sys.listen(ctx, "bench", receiver.URL, "*"); err != nil {
			return r, err
		}
		if err := sys.serve(ctx, 1, "TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8"); err != nil {
			return r, err
		}
		w := newWindow(sys.meter())
		began := time.Now()
		seen, err := sys.crowd(connections).sell(ctx, w, measured)
		if err != nil {
			return r, err
		}
		meanwhile, took := arrived.Load(), time.Since(began)
		r = w.result(seen)
		r.note(toldMeanwhile, perSecond(int(meanwhile), took))
		began = time.Now()
		left, err := sys.awaitDelivered(ctx)
		if err != nil {
			return r, err
		}
		if after := arrived.Load() - meanwhile; after > 0 {
			r.note(toldAfterwards, perSecond(int(after), time.Since(began)))
		}
		if left > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%d events were not delivered", left))
		}
		r.noteUsage(w, seen.measured[succeeded])
		wrong, err := sys.finish(ctx, seen)
		r.wrong = append(r.wrong, wrong...)
		return r, err
	})
}

// listen makes an endpoint of a client.
func (sys *system) listen(ctx context.Context, client, url, events string) error {
	keys, err := keyring.Parse(sys.setup.drawKey, "")
	if err != nil {
		return err
	}
	id, now := uuidv7.New(), time.Now()
	return postgres.InTx(ctx, sys.db, func(tx pgx.Tx) error {
		_, err := webhook.Create(ctx, tx, webhook.Endpoint{ID: id, Client: client, URL: &url, Events: []string{events}, VerifiedAt: &now}, 0,
			webhooks.Seal(keys, id, webhookhttp.NewSecret()), hogEndpoints)
		return err
	})
}

// awaitDelivered waits until nothing is pending, and returns what still is after a long time.
func (sys *system) awaitDelivered(ctx context.Context) (left int, err error) {
	for end := time.Now().Add(longestDelivery); ; {
		err = sys.db.QueryRow(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`).Scan(&left)
		if err != nil || left == 0 || time.Now().After(end) {
			return left, err
		}
		wait(ctx, 10*time.Millisecond, nil)
	}
}
