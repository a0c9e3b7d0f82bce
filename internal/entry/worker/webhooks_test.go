package worker

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// Clients whose endpoints never answer, each with more of them than there are slots, take
// all that they can get. Another client's event arrives all the same, before any of theirs
// is answered.
func TestEndpointsOfOthersLeaveASlotForAnotherClient(t *testing.T) {
	t.Parallel()
	const theyHave = 8 + 4 + 2 + 1 // of 16 slots
	settings := workerSettings(t)
	settings.Webhooks.AllowNetworks, settings.Webhooks.Timeout = "127.0.0.0/8", servers.Patience
	settings.Webhooks.Concurrency, settings.Webhooks.ConcurrencyPerEndpoint = 16, 1
	w := newWorkerWith(t, settings)
	servers.NoError(t, w.TakeWebhooks(settings.Webhooks, fixture.Key(t), prometheus.NewRegistry()))
	var open, arrived atomic.Int64
	hung := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { open.Add(1); <-hung }))
	t.Cleanup(slow.Close)
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	t.Cleanup(well.Close)
	var group sync.WaitGroup
	defer group.Wait()
	defer close(hung)
	for _, client := range []string{"a", "b", "c", "d"} {
		for range 17 {
			item := dueEndpoint(t, w, client, slow.URL)
			group.Go(func() { _ = w.handlerOf(t, webhook.Kind)(t.Context(), item.Task(), false) })
		}
	}
	servers.Eventually(t, "they have what they can get", func() bool { return open.Load() == theyHave })
	waiting := dueEndpoint(t, w, "a", slow.URL)
	group.Go(func() { _ = w.handlerOf(t, webhook.Kind)(t.Context(), waiting.Task(), false) })
	again := func() bool { // a task that the sweep has made meanwhile
		ended := make(chan struct{})
		group.Go(func() { defer close(ended); _ = w.handlerOf(t, webhook.Kind)(t.Context(), waiting.Task(), false) })
		select {
		case <-ended:
			return true
		case <-time.After(10 * time.Millisecond): // it was the first one
			return false
		}
	}
	servers.Eventually(t, "a second task of an endpoint that waits ends at once", again)
	if err := w.handlerOf(t, webhook.Kind)(t.Context(), dueEndpoint(t, w, "other", well.URL).Task(), false); err != nil || arrived.Load() != 1 || open.Load() != theyHave {
		t.Errorf("%d arrived, %d of theirs are under way, %v", arrived.Load(), open.Load(), err)
	}
}

// handlerOf returns what does the tasks of a kind.
func (w *Worker) handlerOf(t *testing.T, kind string) queue.Handler {
	t.Helper()
	for _, share := range w.consumers {
		if share.Kind == kind {
			return share.Handle
		}
	}
	t.Fatalf("nothing does tasks of %s", kind)
	return nil
}

// dueEndpoint makes an endpoint that something is due for.
func dueEndpoint(t *testing.T, w *Worker, client, url string) (item lease.Item) {
	t.Helper()
	id := uuidv7.New()
	err := postgres.InTx(t.Context(), w.db, func(tx pgx.Tx) error {
		made, err := webhook.Create(t.Context(), tx, webhook.Endpoint{ID: id, Client: client, URL: url, Events: []string{"*"}},
			webhook.Seal(fixture.Key(t), id, sender.NewSecret()), 100)
		if err != nil {
			return err
		}
		item = made.Item()
		_, err = webhook.Test(t.Context(), tx, made)
		return err
	})
	servers.NoError(t, err)
	servers.Exec(t, w.db, `UPDATE webhook_endpoints SET verified_at = clock_timestamp() WHERE id = $1`, id)
	return item
}
