// Package upkeep joins the sweeps and the invariants of all topics.
//
// A [Sweeper] runs the sweeps, of which docs/architecture.md has a list. A new sweep is a constructor in the sweep.go of its
// topic, a line in [New], its case in the tests, and a line in that list.
package upkeep

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/approval"
	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/campaign"
	"triprize/internal/domain/payprovider"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/sweep"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/trail"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
)

// Sweeper runs the sweeps of all topics.
type Sweeper struct {
	*sweep.Runner
	Sweeps  []sweep.Sweep // in the best order for running each once
	resumer *campaign.Resumer
}

// Options are what not every process has for its sweeps.
type Options struct {
	Holds    *inventory.HoldMetrics // counts the holds that end; nil: nothing does
	Draws    *drawing.Triggers      // counts the draws that are triggered; nil: nothing does
	Events   *cards.Events          // with a provider of payments
	Provider payprovider.Provider   // set with Events, or nil: missed-events, missing-permissions and reconciliation then do nothing
}

// New returns a Sweeper. db is a pool, or a view of it for transactions that may wait for locks, see
// [sweep.RowWait].
func New(settings config.Settings, db postgres.Pool, rdb redis.UniversalClient, logger *slog.Logger, o Options) *Sweeper {
	client, keep := queue.NewClient(rdb, settings.Redis.Namespace), settings.Retention
	enqueue := job.EnqueueTo(client)
	counted := func(ctx context.Context, messages []job.Message) (int, error) {
		for _, m := range messages {
			if m.Kind == job.KindDraw {
				o.Draws.Note(m)
			}
		}
		return enqueue(ctx, messages)
	}
	seller := sale.NewSeller(db, keep.Jobs, sale.Reservations{For: settings.Payments.Reservation,
		MaxExtension: cmp.Or(settings.Payments.MaxExtension, sale.MaxExtension), MaxPerUser: settings.Payments.MaxPositionsPerUser})
	s := &Sweeper{Runner: sweep.NewRunner(rdb, settings, logger), resumer: campaign.NewResumer(db, enqueue, logger)}
	s.Sweeps = []sweep.Sweep{
		inventory.ExpiredHolds(db, o.Holds),
		wallet.ExpiredAuthorizations(db),
		sale.ExpiredReservations(db),
		sweep.Join("due-items", time.Second, due(settings, db, client, seller, counted, logger)...),
		cards.MissedEvents(o.Events, o.Provider, client, logger),
		cards.MissingPermissions(o.Provider, logger),
		reconciliation.New(db, o.Provider, keep.Books, logger).Sweep(),
		campaign.StaleLocks(db, cmp.Or(settings.Draw.Lease, drawing.Lease), logger),
		lifecycle.EndedSales{DB: db, Seller: seller, Holds: o.Holds, Enqueue: counted, JobRetention: keep.Jobs, Logger: logger}.Sweep(),
		drawing.StuckDraws(db, cmp.Or(settings.Sweeps.StuckDrawsAfter, drawing.StuckAfter), keep.Jobs, counted, logger),
		sweep.Join("lost-jobs", job.LostJobsEvery, s.resumer.Sweep(),
			job.LostJobs(db, queue.NewFinder(rdb, settings.Redis.Namespace), enqueue, lostJobsBackoff(settings), logger)),
		sweep.OldRecords(settings.Redis.Namespace, slices.Concat(
			job.Prunes(db, keep.Refused, purchase.JobIsSettled),
			inventory.Prunes(db, settings.Holds),
			payment.Prunes(db),
			[]sweep.Prune{sweep.OlderThan("balance_deleted", db, keep.Books, reconciliation.DeleteOld)},
			webhook.Prunes(db, keep.Webhooks),
			approval.Prunes(db),
			Personal().Expired(db, keep.Personal, keep.Jobs),
		)),
		NewAuditor(db, logger).Sweep(),
		trail.Seals(db, logger),
		approval.ExpiredRequests(db),
		books.ClosingMonths(db, export.Hashed),
	}
	for i, one := range s.Sweeps {
		s.Sweeps[i].Every = cmp.Or(settings.Sweeps.Every[one.Name], one.Every)
	}
	return s
}

// due are the parts of the sweep due-items. Where cards are switched off nobody takes tasks of
// payments and refunds.
func due(settings config.Settings, db postgres.Pool, client *queue.Client, seller *sale.Seller, enqueue job.Enqueuer, logger *slog.Logger) []sweep.Sweep {
	recheck := cmp.Or(settings.Payments.Recheck, cards.Recheck)
	with := cards.Due(db, client, recheck)
	payments, refunds := sale.WithoutProvider{DB: db, Seller: seller, Enqueue: enqueue, Recheck: recheck, Logger: logger}.Sweep(), payment.RefundsWithoutProvider(db, recheck, logger)
	if settings.Payments.Stripe.Enabled() {
		payments.Run, refunds.Run = nil, nil
	} else {
		with.Run = nil
	}
	return []sweep.Sweep{webhook.Due(db, client), with, payments, refunds, payment.Escalation(db, logger)}
}

func lostJobsBackoff(settings config.Settings) job.Backoff {
	return job.Backoff{First: cmp.Or(settings.Sweeps.LostJobsBackoff, job.LostJobsBackoff), Longest: cmp.Or(settings.Sweeps.LostJobsMaxBackoff, 5*time.Minute),
		Deaths: cmp.Or(settings.Worker.MaxDeliveries, job.MaxDeliveries)}
}

// LockedCampaigns returns how many campaigns the last run of lost-jobs has found locked, see [campaign.Resumer].
func (s *Sweeper) LockedCampaigns() int { return s.resumer.Locked() }
