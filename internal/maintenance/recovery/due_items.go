package recovery

import (
	"cmp"
	"context"
	"errors"
	"time"

	"triprize/internal/service/payments"
	"triprize/internal/store/agenda"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
	"triprize/internal/store/webhook"
)

const eventsGrace = 5 * time.Second // an event may wait so long for the task that its webhook has enqueued

// dueItems enqueues tasks for agenda items that are due: a task was lost, a worker has died,
// the buyer, the provider or a pause was waited for, or the time of a reservation is over.
// An item is then not due for a while, so that it has one task at a time, or few when the
// queue is long. It also sees to events of the provider that nobody works off, and fails
// what waits for endpoints that are disabled. Where cards are switched off nobody takes
// tasks of payments and refunds, see withoutProvider. What has waited for long becomes the
// operators'. One table does not hold up the others.
func (s *Sweeper) dueItems(ctx context.Context) (Counts, error) {
	counts := Counts{"events_enqueued": 0, "deliveries_failed": 0, "payments_waiting": 0, "payments_concluded": 0, "refunds_waiting": 0,
		"payments_escalated": 0, "refunds_escalated": 0}
	recheck := cmp.Or(s.settings.Payments.Recheck, payments.Recheck)
	webhooks := errors.Join(s.due(ctx, counts, webhook.Agenda, webhook.TurnAgain, s.enqueueItems), s.failDisabled(ctx, counts))
	if !s.settings.Payments.Stripe.Enabled() {
		return counts, errors.Join(webhooks, s.due(ctx, counts, payment.Agenda, recheck, s.withoutProvider),
			s.due(ctx, counts, refund.Agenda, recheck, s.refundsWithoutProvider), s.escalate(ctx, counts))
	}
	return counts, errors.Join(webhooks, s.due(ctx, counts, payment.Agenda, recheck, s.enqueueItems),
		s.due(ctx, counts, refund.Agenda, recheck, s.enqueueItems), s.openEvents(ctx, counts), s.escalate(ctx, counts))
}

// escalate gives payments and refunds to the operators that have waited for a key or the
// provider for too long. They go on by themselves all the same.
func (s *Sweeper) escalate(ctx context.Context, counts Counts) error {
	const after = 6 * time.Hour // longer than an outage that one would sit out
	err := errors.Join(s.batches(func(limit int) (int, error) {
		n, err := payment.Escalate(ctx, s.db, after, limit)
		counts["payments_escalated"] += n
		return n, err
	}), s.batches(func(limit int) (int, error) {
		n, err := refund.Escalate(ctx, s.db, after, limit)
		counts["refunds_escalated"] += n
		return n, err
	}))
	if payments, refunds := counts["payments_escalated"], counts["refunds_escalated"]; payments+refunds > 0 {
		s.logger.Error("payments or refunds wait for the provider too long: they are the operators'", "payments", payments, "refunds", refunds, "after", after)
	}
	return err
}

// due takes the items of a table that are due, and does something with them.
func (s *Sweeper) due(ctx context.Context, counts Counts, table agenda.Table, again time.Duration,
	do func(ctx context.Context, counts Counts, table agenda.Table, due []agenda.Item) error,
) error {
	counts[table.Name+"_due"], counts[table.Name+"_enqueued"] = 0, 0
	return s.batches(func(limit int) (int, error) {
		due, err := table.TakeDue(ctx, s.db, again, limit)
		if err != nil || len(due) == 0 {
			return 0, err
		}
		counts[table.Name+"_due"] += len(due)
		return len(due), do(ctx, counts, table, due)
	})
}

func (s *Sweeper) enqueueItems(ctx context.Context, counts Counts, table agenda.Table, due []agenda.Item) error {
	n, err := table.Enqueue(ctx, s.db, s.client, due)
	counts[table.Name+"_enqueued"] += n
	return err
}

// failDisabled fails what waits for endpoints that are disabled.
func (s *Sweeper) failDisabled(ctx context.Context, counts Counts) error {
	return s.batches(func(limit int) (int, error) {
		n, err := webhook.FailDisabled(ctx, s.db, limit)
		counts["deliveries_failed"] += n
		return n, err
	})
}

// openEvents enqueues a task when events wait whose task was lost. One task works off
// all of them.
func (s *Sweeper) openEvents(ctx context.Context, counts Counts) error {
	wait, err := payment.EventsWait(ctx, s.db)
	if err != nil || wait < eventsGrace {
		return err
	}
	counts["events_enqueued"]++
	return s.client.Enqueue(ctx, payments.EventsTask())
}

// missedEvents asks the provider for events whose webhooks did not come.
func (s *Sweeper) missedEvents(ctx context.Context) (Counts, error) {
	counts := Counts{"listed": 0, "stored": 0}
	if s.events == nil {
		return counts, nil
	}
	found, err := s.events.ListMissed(ctx, s.provider)
	counts["listed"], counts["stored"] = found.Listed, found.Stored
	if found.Stored > 0 {
		s.logger.Warn("events of the provider had not come by webhook", "events", found.Stored)
		if enqueued := s.client.Enqueue(ctx, payments.EventsTask()); enqueued != nil && err == nil {
			err = enqueued
		}
	}
	if err == nil && found.More {
		err = errMore
	}
	return counts, err
}
