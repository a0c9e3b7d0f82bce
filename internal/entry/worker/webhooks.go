package worker

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/service/webhooks"
)

// teller is the part of a worker that delivers events to apps. Its tasks are no messages of
// the outbox: what is due stays due in Postgres, whatever becomes of a task.
type teller struct {
	sender    *webhookhttp.Sender
	deliverer *webhooks.Deliverer
	sending   context.Context //nolint:containedctx // it ends when the worker drains, and tasks have contexts of their own
	end       context.CancelFunc
}

// TakeWebhooks lets the worker deliver events, with queues and slots of their own. key opens
// the secrets of endpoints. Call it before Run.
func (w *Worker) TakeWebhooks(settings config.Webhooks, key keyring.Keyring, registry prometheus.Registerer) error {
	guard, err := webhookhttp.NewGuard(settings.AllowNetworks)
	if err != nil {
		return fmt.Errorf("setting webhooks.allow_networks: %w", err)
	}
	sender := webhookhttp.NewSender(guard, settings.Timeout, webhookhttp.Options{})
	t := &teller{sender: sender, deliverer: webhooks.NewDeliverer(w.gate.FirstTry(0), key, sender, resource.WebhookDocuments{DB: w.db},
		webhooks.Settings{Concurrency: settings.ConcurrencyPerEndpoint, Timeout: settings.Timeout, GiveUpAfter: settings.GiveUpAfter}, w.logger, registry)}
	t.sending, t.end = context.WithCancel(context.Background())
	w.webhooks = t
	registry.MustRegister(telemetry.Bounded(newWebhookGauges(w.db, w.logger), gaugesPatience))
	w.shares = append(w.shares,
		queue.Share{Kind: webhooks.Kind, Tasks: settings.Concurrency, Handle: w.tell},
		queue.Share{Kind: webhooks.KindSlow, Tasks: settings.Concurrency, Handle: w.tell})
	return nil
}

// drain ends what is being sent: it is as if it was never sent.
func (t *teller) drain() {
	if t != nil {
		t.end()
	}
}

// close frees what is left.
func (t *teller) close() {
	if t != nil {
		t.end()
		t.sender.Close()
	}
}

// tell has a turn with the endpoint of a task. A task is never tried again: what is due is
// found by the sweep due-webhooks. What is still due afterwards gets its next task at once.
func (w *Worker) tell(ctx context.Context, task queue.Task, _ bool) error {
	ref, err := webhooks.RefOf(task)
	if err != nil {
		w.logger.Error("a task of no webhook endpoint was dropped", "error", err)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.webhooks.sending, cancel)() //nolint:contextcheck // it ends the turn when the worker drains
	result, err := w.webhooks.deliverer.Run(ctx, ref.ID)
	if err != nil {
		if ctx.Err() == nil {
			w.metrics.faults.Inc()
			w.logger.Error("a webhook endpoint could not be told; it is tried again when its lease is over", "endpoint", ref.ID, "error", err)
		}
		return nil
	}
	if result.More && ctx.Err() == nil {
		next, err := webhooks.TaskOf(result.Next)
		if err == nil {
			err = w.client.Enqueue(ctx, next)
		}
		if err != nil {
			w.logger.Debug("a webhook endpoint has no next task; the sweep due-webhooks will make it", "endpoint", ref.ID, "error", err)
		}
	}
	return nil
}
