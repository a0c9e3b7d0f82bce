package recovery

import (
	"context"
	"time"

	"triprize/internal/service/payments"
	"triprize/internal/service/refunds"
	"triprize/internal/store/payment"
)

// eventsGrace is how long an event may wait for the task that its webhook has enqueued.
const eventsGrace = 5 * time.Second

// unsettledPayments enqueues tasks for payments that are due: a task was lost, a worker
// has died, the buyer or the provider was waited for, or the time of a reservation is
// over. A payment is taken out of the agenda for payments.recheck, so that it has one
// task at a time, or few when the queue is long; more do no harm. It does the same for card
// refunds, and sees to events that nobody works off. Where cards are switched off there
// are no tasks, see withoutProvider.
func (s *Sweeper) unsettledPayments(ctx context.Context) (Counts, error) {
	counts := Counts{"payments_due": 0, "payments_enqueued": 0, "payments_waiting": 0, "payments_concluded": 0, "refunds_enqueued": 0, "events_enqueued": 0}
	if err := s.batches(func(limit int) (int, error) { return s.duePayments(ctx, counts, limit) }); err != nil {
		return counts, err
	}
	if err := s.batches(func(limit int) (int, error) { return s.dueRefunds(ctx, counts, limit) }); err != nil {
		return counts, err
	}
	return counts, s.openEvents(ctx, counts)
}

// dueRefunds enqueues tasks for card refunds that are due. One whose task is not enqueued
// is due again after payments.recheck.
func (s *Sweeper) dueRefunds(ctx context.Context, counts Counts, limit int) (taken int, err error) {
	if !s.settings.Payments.Stripe.Enabled() { // nobody takes tasks of refunds
		return 0, nil
	}
	tasks, err := refunds.Due(ctx, s.db, s.settings.Payments.Recheck, limit)
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		if err := s.client.Enqueue(ctx, task); err != nil {
			return 0, err
		}
		counts["refunds_enqueued"]++
	}
	return len(tasks), nil
}

func (s *Sweeper) duePayments(ctx context.Context, counts Counts, limit int) (taken int, err error) {
	due, err := payment.TakeDue(ctx, s.db, s.settings.Payments.Recheck, limit)
	if err != nil {
		return 0, err
	}
	counts["payments_due"] += len(due)
	if !s.settings.Payments.Stripe.Enabled() { // nobody takes tasks of payments
		return len(due), s.withoutProvider(ctx, counts, due)
	}
	for i, ref := range due {
		task, err := payments.TaskOf(ref)
		if err == nil {
			err = s.client.Enqueue(ctx, task)
		}
		if err != nil {
			if back := payment.GiveBack(context.WithoutCancel(ctx), s.db, due[i:]); back != nil {
				s.logger.Warn("payments were not given back; they are due later", "payments", len(due)-i, "error", back)
			}
			return 0, err
		}
		counts["payments_enqueued"]++
	}
	return len(due), nil
}

// openEvents enqueues a task when events wait whose task was lost. One task works off
// all of them.
func (s *Sweeper) openEvents(ctx context.Context, counts Counts) error {
	if !s.settings.Payments.Stripe.Enabled() {
		return nil
	}
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
	found, err := s.events.ListMissed(ctx, s.lister)
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
