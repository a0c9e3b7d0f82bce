package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
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
	toldP50        = "event p50 ms" // from the event, by the clock of the database, to the receiver, beside one buyer
	toldP95        = "event p95 ms"
)

// buyerEvery is how far apart the purchases of a lone buyer are whose events are timed.
const buyerEvery = 50 * time.Millisecond

// longestDelivery bounds the wait for what was not delivered when the sale was over.
const longestDelivery = 5 * time.Minute

// eventSale is a crowdedSale of an app that is told of every purchase: how much it sells a
// second, how many events its one healthy receiver gets meanwhile, and how many when the
// crowd has gone. Then a lone buyer buys, and it is measured how long each event takes.
func eventSale(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot(measured), func(sys *system) (r result, err error) {
		var arrived atomic.Int64
		var quiet delays
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			quiet.note(request.Body)
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
		quiet.timed.Store(true)
		lone := sys.crowd(1)
		lone.every = buyerEvery
		slowly, err := lone.sell(ctx, newWindow(nil), measured)
		if err != nil {
			return r, err
		}
		late, err := sys.awaitDelivered(ctx)
		if err != nil {
			return r, err
		}
		slices.Sort(quiet.took)
		r.note(toldP50, milliseconds(quantile(quiet.took, 50)))
		r.note(toldP95, milliseconds(quantile(quiet.took, 95)))
		if left += late; left > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%d events were not delivered", left))
		}
		r.noteUsage(w, seen.measured[succeeded])
		seen.add(slowly)
		wrong, err := sys.finish(ctx, seen, 1)
		r.wrong = append(r.wrong, wrong...)
		return r, err
	})
}

// delays are how long events have taken, while they are timed.
type delays struct {
	timed atomic.Bool
	mu    sync.Mutex
	took  []time.Duration
}

// note reads the body of a message.
func (d *delays) note(body io.Reader) {
	if !d.timed.Load() {
		_, _ = io.Copy(io.Discard, body)
		return
	}
	now := time.Now()
	var message struct{ Timestamp time.Time }
	if err := json.NewDecoder(body).Decode(&message); err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.took = append(d.took, now.Sub(message.Timestamp))
	}
}

// listen makes an endpoint of a client.
func (sys *system) listen(ctx context.Context, client, url, events string) error {
	keys, err := keyring.Parse(sys.setup.drawKey, "")
	if err != nil {
		return err
	}
	id, now := uuidv7.New(), time.Now()
	return postgres.InTx(ctx, sys.db, func(tx pgx.Tx) error {
		_, err := webhook.Create(ctx, tx, webhook.Endpoint{ID: id, Client: client, URL: url, Events: []string{events}, VerifiedAt: &now},
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
