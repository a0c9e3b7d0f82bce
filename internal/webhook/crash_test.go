//go:build failpoint

package webhook_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// A worker that dies between sending and recording leaves what it has sent to the next one,
// which sends the same bytes under the same id, also when the resource shows something else by then.
func TestWhatWasSentAndNotRecordedComesAgainAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	e, _ := w.endpoint("shop", r.url)
	w.emit("shop", "purchase.completed", 3)
	d := w.deliverer(2, unhurried)
	remove := failpoint.Set("webhooks.sent", e.ID.String(), runtime.Goexit)
	died := make(chan struct{})
	go func() {
		defer close(died)
		_ = d.Run(t.Context(), e.Item())
	}()
	<-died
	remove()
	if w.run(d, e).Claimed {
		t.Error("the lease of the dead worker does not hold")
	}
	w.leaseEnds(e)
	if result := w.run(d, e); result.Delivered != 3 {
		t.Errorf("got %+v", result)
	}
	bodies := make(map[string][]string)
	for _, m := range r.messages() {
		bodies[m.id] = append(bodies[m.id], m.body)
	}
	if len(bodies) != 3 {
		t.Errorf("%d ids", len(bodies))
	}
	for id, same := range bodies {
		if len(same) != 2 || same[0] != same[1] {
			t.Errorf("%s: %v", id, same)
		}
	}
}

// A worker that was stopped for longer than its lease, or whose endpoint has gone meanwhile, records
// nothing: what another one has done stands.
func TestAWorkerThatIsFencedRecordsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set       string
		delivered int
	}{
		"another worker has the lease": {`lease_until = clock_timestamp() - interval '1 second'`, 2},
		"the endpoint is disabled":     {`disabled_at = clock_timestamp(), disabled_reason = 'asked'`, 0},
		"the endpoint is deleted":      {`deleted_at = clock_timestamp()`, 0},
	} {
		w := newWorld(t)
		r := newReceiver(t, status(500))
		e, _ := w.endpoint("shop", r.url)
		w.emit("shop", "purchase.completed", 2)
		d := w.deliverer(2, unhurried)
		var stopped atomic.Bool
		remove := failpoint.Set("webhooks.sent", e.ID.String(), func() {
			if stopped.Swap(true) {
				return // that is the other worker
			}
			servers.Exec(t, w.db, `UPDATE webhook_endpoints SET `+c.set)
			if r.then(nil); c.delivered > 0 {
				w.run(d, e)
			}
		})
		if err := d.Run(t.Context(), e.Item()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		remove()
		if failed, arrived := w.rows(`webhook_attempts WHERE error IS NOT NULL`), w.rows(`webhook_deliveries WHERE state = 'delivered'`); failed != 0 || arrived != c.delivered ||
			w.rows(`webhook_endpoints WHERE failures > 0 OR paused_until IS NOT NULL`) != 0 {
			t.Errorf("%s: %d failures are recorded, %d are delivered", name, failed, arrived)
		}
	}
}

// Who repairs an endpoint while a worker is sending to it does not wait for that worker, whose attempt counts no more.
func TestARepairedEndpointDoesNotWaitForAnAttemptThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(tx pgx.Tx, w *world, e webhook.Endpoint, r *receiver) error{
		"a new URL": func(tx pgx.Tx, w *world, e webhook.Endpoint, _ *receiver) error {
			elsewhere := newReceiver(w.t, nil).url
			_, err := webhook.Patch(w.t.Context(), tx, e.ID, webhook.Change{URL: &elsewhere, Verified: true})
			return err
		},
		"disabled and enabled": func(tx pgx.Tx, w *world, e webhook.Endpoint, r *receiver) error {
			r.then(nil)
			_, err := webhook.Disable(w.t.Context(), tx, e.ID, webhook.Asked)
			if err == nil {
				_, err = webhook.Enable(w.t.Context(), tx, e.ID, "")
			}
			return err
		},
		"of a key that is revoked, and enabled": func(tx pgx.Tx, w *world, e webhook.Endpoint, r *receiver) error {
			r.then(nil)
			servers.Exec(w.t, tx, `UPDATE webhook_endpoints SET made_by = 'gone' WHERE id = $1`, e.ID)
			_, err := webhook.KeyRevoked(w.t.Context(), tx, "gone", "")
			if err == nil {
				_, err = webhook.Enable(w.t.Context(), tx, e.ID, "")
			}
			return err
		},
	} {
		w := newWorld(t)
		r := newReceiver(t, status(500))
		e, _ := w.endpoint("shop", r.url)
		w.emit("shop", "purchase.completed", 2)
		d := w.deliverer(2, unhurried)
		var stopped atomic.Bool
		remove := failpoint.Set("webhooks.sent", e.ID.String(), func() {
			if stopped.Swap(true) {
				return // that is the other worker
			}
			w.tx(func(tx pgx.Tx) error { return repair(tx, w, e, r) })
			if result := w.run(d, e); result.Delivered != 2 || result.Failed != 0 {
				t.Errorf("%s: got %+v", name, result)
			}
		})
		servers.NoError(t, d.Run(t.Context(), e.Item()))
		remove()
	}
}

// A replay that is asked for while its event is under way is not lost, whether it is tried for
// the first time or again.
func TestAReplayDuringAnAttemptIsDoneAfterwards(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ again, span bool }{"first": {}, "again": {again: true}, "first, of a span": {span: true}, "again, of a span": {again: true, span: true}} {
		w := newWorld(t)
		r := newReceiver(t, nil)
		e, _ := w.endpoint("shop", r.url)
		w.emit("shop", "purchase.completed", 1)
		d := w.deliverer(1, unhurried)
		attempts := 1
		if c.again {
			r.then(status(500))
			w.run(d, e)
			w.clock.MoveOn(webhooksFirstWait)
			r.then(nil)
			attempts++
		}
		delivery, _ := w.only(e)
		remove := failpoint.Set("webhooks.sent", e.ID.String(), func() {
			if !c.span {
				w.replay(e, delivery.EventID)
				return
			}
			w.tx(func(tx pgx.Tx) error {
				_, _, err := webhook.ReplaySpan(t.Context(), tx, w.now(e), webhook.LastHour(), 10)
				return err
			})
		})
		w.run(d, e)
		remove()
		if delivery, made := w.only(e); delivery.State != webhook.Pending || len(made) != attempts {
			t.Errorf("%s: got %+v", what, delivery)
		}
		w.clock.MoveOn(webhooksFirstWait)
		if result := w.run(d, e); result.Delivered != 1 || len(r.messages()) != attempts+1 {
			t.Errorf("%s: got %+v", what, result)
		}
	}
}
