package recovery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/webhook"
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
	recheck := cmp.Or(s.settings.Payments.Recheck, cards.Recheck)
	webhooks := errors.Join(s.due(ctx, counts, webhook.Agenda, webhook.TurnAgain, s.enqueueItems), s.failDisabled(ctx, counts))
	if !s.settings.Payments.Stripe.Enabled() {
		return counts, errors.Join(webhooks, s.due(ctx, counts, payment.Agenda, recheck, s.withoutProvider),
			s.due(ctx, counts, payment.RefundAgenda, recheck, s.refundsWithoutProvider), s.escalate(ctx, counts))
	}
	return counts, errors.Join(webhooks, s.due(ctx, counts, payment.Agenda, recheck, s.enqueueItems),
		s.due(ctx, counts, payment.RefundAgenda, recheck, s.enqueueItems), s.openEvents(ctx, counts), s.escalate(ctx, counts))
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
		n, err := payment.EscalateRefunds(ctx, s.db, after, limit)
		counts["refunds_escalated"] += n
		return n, err
	}))
	if payments, refunds := counts["payments_escalated"], counts["refunds_escalated"]; payments+refunds > 0 {
		s.logger.Error("payments or refunds wait for the provider too long: they are the operators'", "payments", payments, "refunds", refunds, "after", after)
	}
	return err
}

// due takes the items of a table that are due, and does something with them.
func (s *Sweeper) due(ctx context.Context, counts Counts, table lease.Table, again time.Duration,
	do func(ctx context.Context, counts Counts, table lease.Table, due []lease.Item) error,
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

func (s *Sweeper) enqueueItems(ctx context.Context, counts Counts, table lease.Table, due []lease.Item) error {
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
	return s.client.Enqueue(ctx, cards.EventsTask())
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
		if enqueued := s.client.Enqueue(ctx, cards.EventsTask()); enqueued != nil && err == nil {
			err = enqueued
		}
	}
	if err == nil && found.More {
		err = errMore
	}
	return counts, err
}

// concludedAtOnce is how many payments a transaction of the sale concludes here.
const concludedAtOnce = 50

// withoutProvider is what becomes of due payments where cards are switched off, since no
// worker takes their tasks. Those whose end is known without a provider get it here: what
// was given up before anything was sent, what an operator has resolved, what was captured
// before. The others wait for a key, and say so.
func (s *Sweeper) withoutProvider(ctx context.Context, counts Counts, _ lease.Table, due []lease.Item) error {
	var known, waiting []payment.Ref
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		if known, waiting, err = payment.EndUnsent(ctx, tx, due); err != nil || len(waiting) == 0 {
			return err
		}
		return s.sayNoKey(ctx, tx, waiting)
	})
	if err != nil {
		return err
	}
	counts["payments_waiting"] += len(waiting)
	if len(waiting) > 0 {
		s.logger.Error("payments wait: payments.stripe.key is not set", "payments", len(waiting))
	}
	for some := range slices.Chunk(known, concludedAtOnce) {
		err := s.conclude(ctx, counts, some)
		if err == nil {
			continue
		}
		if postgres.IsTransient(err) || ctx.Err() != nil {
			return err
		}
		for i, one := range some { // one of them is broken, and the others need not suffer
			if err := s.conclude(ctx, counts, some[i:i+1]); err != nil {
				s.logger.Error("a payment cannot be concluded", "purchase", one.PurchaseID, "error", err)
			}
		}
	}
	return nil
}

// refundsWithoutProvider notes that refunds wait for a key.
func (s *Sweeper) refundsWithoutProvider(ctx context.Context, counts Counts, _ lease.Table, due []lease.Item) error {
	n, err := payment.RefundsWaitForKey(ctx, s.db, due)
	counts["refunds_waiting"] += n
	if n > 0 {
		s.logger.Error("refunds wait: payments.stripe.key is not set", "refunds", n)
	}
	return err
}

// conclude decides what becomes of payments whose end is known. Those whose campaign is
// locked are due again later.
func (s *Sweeper) conclude(ctx context.Context, counts Counts, known []payment.Ref) error {
	jobs := make([]job.Ref, len(known))
	for i, p := range known {
		jobs[i] = job.Ref{ID: p.JobID, CampaignID: p.CampaignID}
	}
	report, err := s.seller.Conclude(ctx, jobs, sale.SkipLocked)
	if err != nil {
		return err
	}
	for _, broken := range report.Broken {
		s.logger.Error("a payment was concluded, and its job was final before", "error", broken.Error()) // a text: another job is another line
	}
	job.LogFinal(ctx, s.logger, report.Finalized)
	s.draws.Note(report.Messages...)
	counts["payments_concluded"] += len(known) - len(report.Busy)
	if _, err := s.enqueue(ctx, report.Messages); err != nil {
		s.logger.Warn("messages are not enqueued; lost-jobs will enqueue them", "messages", len(report.Messages), "error", err)
	}
	return nil
}

// sayNoKey tells of payments that they wait because cards were switched off.
func (s *Sweeper) sayNoKey(ctx context.Context, tx pgx.Tx, waiting []payment.Ref) error {
	purchases, jobs := make([]uuid.UUID, len(waiting)), make([]uuid.UUID, len(waiting))
	for i, ref := range waiting {
		purchases[i], jobs[i] = ref.PurchaseID, ref.JobID
	}
	var b pgx.Batch
	payment.QueueWaiting(&b, purchases, payment.WaitsForKey)
	job.QueueWaiting(&b, jobs, job.Waiting{Reason: payment.WaitsForKey.Text(), RetryAt: time.Now().Add(cmp.Or(s.settings.Payments.Recheck, cards.Recheck)).UTC()})
	return tx.SendBatch(ctx, &b).Close()
}

// expiredAuthorizations ends authorizations that are over. A run tries each wallet once:
// one that is locked or broken is left for the next run and does not delay the others.
func (s *Sweeper) expiredAuthorizations(ctx context.Context) (Counts, error) {
	counts := Counts{"wallets": 0, "expired": 0, "passed_over": 0}
	var visited []uuid.UUID
	err := s.batches(func(limit int) (int, error) {
		done, err := s.wallets.Expire(ctx, visited, limit)
		if err != nil {
			return 0, err
		}
		visited = append(visited, done.Visited...)
		counts["wallets"] += len(done.Visited)
		counts["expired"] += done.Authorizations
		counts["passed_over"] += done.PassedOver
		if len(done.Visited) > 0 {
			return limit, nil // other wallets may have more
		}
		return 0, nil
	})
	return counts, err
}

// missingPermissions asks what the key of the provider may do: a restricted key can lose a
// permission at any time, and the first payment or refund that needs it would tell.
func (s *Sweeper) missingPermissions(ctx context.Context) (Counts, error) {
	counts := Counts{"asked": 0, "missing": 0}
	if s.provider == nil {
		return counts, nil
	}
	has, err := s.provider.CheckPermissions(ctx)
	counts["asked"] = len(has)
	for _, permission := range slices.Sorted(maps.Keys(has)) {
		if !has[permission] {
			counts["missing"]++
			s.logger.Error("the key of the provider lacks a permission: what needs it waits for an operator", "permission", permission)
		}
	}
	return counts, err
}

// reconciliation compares the next closed day of the provider's balance with our books, and
// closes differences that are none any more. Without a provider no day is compared.
func (s *Sweeper) reconciliation(ctx context.Context) (Counts, error) {
	done, more, err := s.books.Run(ctx)
	counts := Counts{"days": done.Days, "listed": done.Listed, "foreign": done.Foreign, "differences": done.Found, "closed": done.Closed}
	if err == nil && more {
		err = errMore
	}
	return counts, err
}
