package cards

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
)

const eventsGrace = 5 * time.Second // an event may wait so long for the task that its webhook has enqueued

// Due is the part of the sweep due-items for payments and refunds that are due, and for events of
// the provider that wait whose task was lost. One task works off all of these.
func Due(db postgres.Pool, client *queue.Client, recheck time.Duration) sweep.Sweep {
	return sweep.Sweep{Counts: []string{"payments_due", "payments_enqueued", "refunds_due", "refunds_enqueued", "events_enqueued"},
		Run: func(ctx context.Context, run sweep.Run) error {
			return errors.Join(payment.Leases.EnqueueDue(ctx, run, db, client, recheck), payment.RefundLeases.EnqueueDue(ctx, run, db, client, recheck),
				enqueueEvents(ctx, run, db, client))
		}}
}

func enqueueEvents(ctx context.Context, run sweep.Run, db postgres.Pool, client *queue.Client) error {
	wait, err := payment.EventsWait(ctx, db)
	if err != nil || wait < eventsGrace {
		return err
	}
	run.Counts["events_enqueued"]++
	return client.Enqueue(ctx, EventsTask())
}

// MissedEvents is the sweep that asks the provider for events whose webhooks did not come. Without
// events there is no provider, and it does nothing.
func MissedEvents(events *Events, provider payprovider.Provider, client *queue.Client, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Name: "missed-events", Every: time.Minute, Interruptible: true, Counts: []string{"listed", "stored"},
		Run: func(ctx context.Context, run sweep.Run) error {
			if events == nil {
				return nil
			}
			found, err := events.ListMissed(ctx, provider)
			run.Counts["listed"], run.Counts["stored"] = found.Listed, found.Stored
			if found.Stored > 0 {
				logger.Warn("events of the provider had not come by webhook", "events", found.Stored)
				if enqueued := client.Enqueue(ctx, EventsTask()); enqueued != nil && err == nil {
					err = enqueued
				}
			}
			if err == nil && found.More {
				err = sweep.ErrMore
			}
			return err
		}}
}

// MissingPermissions is the sweep that asks what the key of the provider may do: a restricted key can
// lose a permission at any time, which otherwise only the first payment or refund that needs it would show.
// provider may be nil.
func MissingPermissions(provider payprovider.Provider, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Name: "missing-permissions", Every: time.Hour, Interruptible: true, Counts: []string{"asked", "missing"},
		Run: func(ctx context.Context, run sweep.Run) error {
			if provider == nil {
				return nil
			}
			has, err := provider.CheckPermissions(ctx)
			run.Counts["asked"] = len(has)
			for _, permission := range slices.Sorted(maps.Keys(has)) {
				if !has[permission] {
					run.Counts["missing"]++
					logger.Error("the key of the provider lacks a permission: what needs it waits for an operator", "permission", permission)
				}
			}
			return err
		}}
}
