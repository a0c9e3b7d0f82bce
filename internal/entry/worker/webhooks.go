package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/lease"
	"triprize/internal/platform/config"
	"triprize/internal/platform/fair"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// The slots for webhooks are divided among clients. A worker holds more tasks than it has slots, so that
// it knows which clients wait.
const (
	webhookRun     = 2 * time.Second // of one task: as long as a request may take before its endpoint counts as slow
	tasksPerSlot   = 64
	webhookTimeout = 15 * time.Second // one request
	slotTimeout    = time.Minute      // then the sweep due-items enqueues another task
)

// TakeWebhooks lets the worker deliver events to apps, with separate queues and slots. key decrypts the
// secrets of endpoints. Call it before Run.
func (w *Worker) TakeWebhooks(settings config.Webhooks, key keyring.Keyring, registry prometheus.Registerer) error {
	guard, err := sender.NewGuard(settings.AllowNetworks)
	if err != nil {
		return fmt.Errorf("setting webhooks.allow_networks: %w", err)
	}
	timeout := cmp.Or(settings.Timeout, webhookTimeout)
	w.sender = sender.NewSender(guard, timeout, sender.Options{})
	deliverer := webhook.NewDeliverer(w.gate.FirstTry(0), key, w.sender, resource.WebhookDocuments{DB: w.db},
		webhook.DelivererSettings{Concurrency: cmp.Or(settings.ConcurrencyPerEndpoint, 32), Timeout: timeout, GiveUpAfter: 72 * time.Hour, RunTime: webhookRun}, w.logger, registry)
	for _, kind := range []string{webhook.Kind, webhook.KindSlow} {
		slots := &webhookSlots{pool: fair.NewPool(int64(settings.Concurrency))}
		w.consumers = append(w.consumers, w.processor.Items(kind, postgres.TxWebhook, settings.Concurrency*tasksPerSlot,
			func(ctx context.Context, item lease.Item) error { return w.deliver(ctx, slots, deliverer, item) }))
	}
	return nil
}

// webhookSlots are the slots of one kind of tasks.
type webhookSlots struct {
	pool    *fair.Pool
	waiting sync.Map // ids of endpoints; the sweep due-items may enqueue more tasks of one that waits
}

// acquire waits for a slot. It returns false if another task of the endpoint waits, and after slotTimeout.
func (s *webhookSlots) acquire(ctx context.Context, endpoint uuid.UUID, client string) (release func(), ok bool) {
	if _, waits := s.waiting.LoadOrStore(endpoint, true); waits {
		return nil, false
	}
	defer s.waiting.Delete(endpoint)
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	release, err := s.pool.Acquire(ctx, client, 1)
	return release, err == nil
}

// deliver delivers due events to an endpoint, once its client has a slot. If events are still due when its
// lease is released, the next task follows at once. If the worker drains, an event that is being sent counts as
// never sent.
func (w *Worker) deliver(ctx context.Context, slots *webhookSlots, deliverer *webhook.Deliverer, item lease.Item) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.processor.Draining(), cancel)() //nolint:contextcheck // it ends the run when the worker drains
	client, err := webhook.ClientOf(ctx, w.db, item.ID)
	if err != nil {
		return err
	}
	release, ok := slots.acquire(ctx, item.ID, client)
	if !ok {
		return nil // the endpoint is still due
	}
	defer release()
	return deliverer.Run(ctx, item)
}
