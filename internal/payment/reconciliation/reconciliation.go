// Package reconciliation compares the provider's balance with our books, day by day, and
// records what differs for operators.
//
// It owns the balance transactions that are about our payments, the days that were listed, the
// discrepancies, and the id of this installation.
//
// A [Reconciler] takes the oldest day (UTC) that ended 48 hours ago and is not done. It lists
// the provider's balance transactions of the day, matches each by its source, in the
// source's own currency, and then looks for money of ours that has none. Sums of days are
// never compared: the two clocks differ.
//
//	claimed ─▶ listed, span by span ─▶ compared, and done
//	   ▲  cut off, or the provider is away: it goes on after the last span
//	   └──────────────┘
//
// [CompareSpan] compares any span at once, by the same rules, and stores nothing.
//
// It promises:
//
//   - A day is listed once, and each transaction is stored once, however many run: each write
//     is fenced by the version of the day's claim.
//   - What others do on the account is no discrepancy. A transaction of a charge, refund or dispute
//     is ours when our books know its intent or refund, when its metadata name this installation
//     (see [Mark]), or when a transaction of the same intent is ours. Those of others are counted
//     and not stored. All other transactions are of the account, and stored.
//   - A discrepancy is found by its object and kind, once. One that is none any more is closed by
//     the next run. A day is compared once: what differs later is found by [CompareSpan].
//   - It changes no payment, refund or purchase, ever.
//
// A discrepancy:
//
//	          ┌──── explained ────┐     by an operator: it alerts no more
//	open ─────┤                   ├──▶ closed ─▶ open (found again)
//	          └───────────────────┘
//
// Locks: discrepancies are inserted in the order of their objects, and come after payments.
package reconciliation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

const (
	closedAfter = 48 * time.Hour  // a day is closed so long after its end: what is late has come by then
	dayLease    = 2 * time.Minute // longer than a run of a sweep
	dissolve    = 500             // discrepancies that are checked in one statement
	maxLogged   = 20              // discrepancies of a day in the log; the list has all
)

// Report is what a run has done.
type Report struct {
	Days    int // that are done now
	Listed  int // transactions
	Foreign int // of these, about payments of others
	Found   int // discrepancies
	Closed  int // discrepancies that are none any more
}

// Reconciler compares days.
type Reconciler struct {
	db        postgres.Pool
	provider  payprovider.Provider // nil: there is none
	retention time.Duration        // of transactions: older days are not listed
	logger    *slog.Logger
}

// New returns a Reconciler; provider may be nil. Days older than retention are left out.
func New(db postgres.Pool, provider payprovider.Provider, retention time.Duration, logger *slog.Logger) *Reconciler {
	return &Reconciler{db: db, provider: provider, retention: retention, logger: logger}
}

// Run closes discrepancies that are none any more, and compares one day, if there is one to
// be compared. more says that there may be another one. It does not fail because another
// scheduler was quicker.
func (r *Reconciler) Run(ctx context.Context) (done Report, more bool, err error) {
	for after := uuid.Nil; ; {
		closed, last, err := closeAgreed(ctx, r.db, after, dissolve)
		done.Closed += closed
		if err != nil {
			return done, false, fmt.Errorf("reconciliation.Run: %w", err)
		}
		if after = last; last == uuid.Nil {
			break
		}
	}
	if r.provider == nil {
		return done, false, nil
	}
	day, ok, err := claimDay(ctx, r.db, closedAfter, r.retention, dayLease)
	if err != nil || !ok {
		return done, false, err
	}
	err = r.day(ctx, &day, &done)
	switch {
	case errors.Is(err, lease.ErrFenced):
		return done, false, nil
	case err != nil:
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return done, false, fmt.Errorf("reconciliation.Run(%s): %w", day.Day.Format(time.DateOnly), errors.Join(err, release(back, r.db, day)))
	}
	return done, true, nil
}

// day lists what is left of a day, compares it, and ends it.
func (r *Reconciler) day(ctx context.Context, day *claimedDay, done *Report) error {
	err := payment.InSpans(ctx, day.Until, day.end(), r.provider.ListBalanceTransactions, func(to time.Time, all []payprovider.BalanceTransaction) error {
		stored, foreign, err := store(ctx, r.db, day, to, dayLease, all)
		if err != nil {
			return err
		}
		done.Listed += stored + foreign
		done.Foreign += foreign
		failpoint.Hit("reconciliation.stored", nil)
		return nil
	})
	if err != nil {
		return err
	}
	var fresh []Discrepancy
	err = postgres.InTx(ctx, r.db, func(tx pgx.Tx) error {
		// Earlier days are listed by now.
		found, err := compare(ctx, tx, inStore, day.Day.Add(-edge), day.end().Add(-edge), `t.day = $1::date`, day.Day)
		if err != nil {
			return err
		}
		if fresh, err = record(ctx, tx, found); err != nil {
			return err
		}
		return day.write(ctx, tx, day.end(), `done_at = clock_timestamp()`)
	})
	if err != nil {
		return err
	}
	done.Days++
	done.Found += len(fresh)
	r.logFound(day.Day.Format(time.DateOnly), fresh)
	return nil
}

// logFound logs discrepancies that are new.
func (r *Reconciler) logFound(day string, fresh []Discrepancy) {
	for _, d := range fresh[:min(len(fresh), maxLogged)] {
		args := []any{"discrepancy", d.ID, "kind", d.Kind, "object", d.ObjectID, "purchase", d.PurchaseID, "detail", d.Detail,
			"currency", cmp.Or(postgres.ValueOf(d.ThereCurrency), postgres.ValueOf(d.HereCurrency)), "day", day}
		if d.HereAmount != nil { // unknown is not 0
			args = append(args, "here", *d.HereAmount)
		}
		if d.ThereAmount != nil {
			args = append(args, "there", *d.ThereAmount)
		}
		r.logger.Error("the provider's books and ours differ", args...)
	}
	if len(fresh) > maxLogged {
		r.logger.Error("more discrepancies than are logged: see GET /v1/payment-discrepancies", "day", day, "discrepancies", len(fresh))
	}
}

// Sweep is the sweep reconciliation: it compares the next closed day of the provider's balance with
// our books, and closes discrepancies that are none any more. Without a provider no day is compared.
func (r *Reconciler) Sweep() sweep.Sweep {
	return sweep.Sweep{Name: "reconciliation", Every: 10 * time.Minute, Interruptible: true, Counts: []string{"days", "listed", "foreign", "discrepancies", "closed"},
		Run: func(ctx context.Context, run sweep.Run) error {
			done, more, err := r.Run(ctx)
			run.Counts["days"], run.Counts["listed"], run.Counts["foreign"] = done.Days, done.Listed, done.Foreign
			run.Counts["discrepancies"], run.Counts["closed"] = done.Found, done.Closed
			if err == nil && more {
				err = sweep.ErrMore
			}
			return err
		}}
}
