package worker

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/service/webhooks"
	"triprize/internal/store/agenda"
	"triprize/internal/store/webhook"
)

// TakeWebhooks lets the worker deliver events to apps, with queues and slots of their own. key
// opens the secrets of endpoints. Call it before Run.
func (w *Worker) TakeWebhooks(settings config.Webhooks, key keyring.Keyring, registry prometheus.Registerer) error {
	guard, err := webhookhttp.NewGuard(settings.AllowNetworks)
	if err != nil {
		return fmt.Errorf("setting webhooks.allow_networks: %w", err)
	}
	w.sender = webhookhttp.NewSender(guard, settings.Timeout, webhookhttp.Options{})
	deliverer := webhooks.NewDeliverer(w.gate.FirstTry(0), key, w.sender, resource.WebhookDocuments{DB: w.db},
		webhooks.Settings{Concurrency: settings.ConcurrencyPerEndpoint, Timeout: settings.Timeout, GiveUpAfter: settings.GiveUpAfter}, w.logger, registry)
	registry.MustRegister(w.webhookGauges())
	for _, kind := range []string{webhook.Kind, webhook.KindSlow} {
		w.shares = append(w.shares, queue.Share{Kind: kind, Tasks: settings.Concurrency,
			Handle: w.lead(func(ctx context.Context, item agenda.Item) error { return w.deliver(ctx, deliverer, item) })})
	}
	return nil
}

// deliver has a turn with an endpoint. Events still due afterwards get their next task
// at once. When the worker drains, an event that is being sent counts as never sent.
func (w *Worker) deliver(ctx context.Context, deliverer *webhooks.Deliverer, item agenda.Item) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.draining, cancel)() //nolint:contextcheck // it ends the turn when the worker drains
	result, err := deliverer.Run(ctx, item)
	if err == nil && result.More && ctx.Err() == nil {
		w.dispatcher.Dispatch(result.Next.Task())
	}
	return err
}
