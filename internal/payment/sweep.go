package payment

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// RefundsWithoutProvider is the part of the sweep due-items for due refunds where cards are switched
// off: they wait for a key.
func RefundsWithoutProvider(db postgres.Pool, recheck time.Duration, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Counts: []string{"refunds_due", "refunds_enqueued", "refunds_waiting"}, Run: func(ctx context.Context, run sweep.Run) error {
		return RefundLeases.EachDue(ctx, run, db, recheck, func(due []lease.Item) error {
			n, err := RefundsWaitForKey(ctx, db, due)
			run.Counts["refunds_waiting"] += n
			if n > 0 {
				logger.Error("refunds wait: payments.stripe.key is not set", "refunds", n)
			}
			return err
		})
	}}
}

// Escalation is the part of the sweep due-items that gives payments and refunds to the operators that
// have waited for a key or the provider for too long, the longest first. It leaves out what a worker has, and
// what is locked. They are due as before: when the provider answers, they continue automatically.
func Escalation(db postgres.Pool, logger *slog.Logger) sweep.Sweep {
	const after = 6 * time.Hour // longer than an outage that one would sit out
	return sweep.Sweep{Counts: []string{"payments_escalated", "refunds_escalated"}, Run: func(ctx context.Context, run sweep.Run) error {
		escalate := func(a lease.Table, set, where string) error {
			return run.Batches(func(limit int) (int, error) {
				tag, err := db.Exec(ctx, `
					UPDATE `+a.Name+` u SET `+set+`
					FROM (SELECT `+a.Key+` FROM `+a.Name+` `+a.As+`
					      WHERE waiting_since <= clock_timestamp() - $1 * interval '1 second' AND `+where+` AND `+a.Free()+`
					      ORDER BY waiting_since LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) w
					WHERE u.`+a.Key+` = w.`+a.Key, after.Seconds(), limit)
				run.Counts[a.Name+"_escalated"] += int(tag.RowsAffected())
				return int(tag.RowsAffected()), fault.At(err, "payment.Escalation(%s)", a.Name)
			})
		}
		err := errors.Join(
			escalate(Leases, `waiting_for = 'operator', last_error = coalesce(u.last_error, '`+WaitsForKey.Text()+`')`, `waiting_for <> 'operator'`), // what waits for a key has no error
			escalate(RefundLeases, `stuck = true`, `NOT stuck AND `+unfinished))
		if payments, refunds := run.Counts["payments_escalated"], run.Counts["refunds_escalated"]; payments+refunds > 0 {
			logger.Error("payments or refunds wait for the provider too long: they are the operators'", "payments", payments, "refunds", refunds, "after", after)
		}
		return err
	}}
}

// Prunes delete the provider's events when the provider forgets them, too.
func Prunes(db postgres.Pool) []sweep.Prune {
	return []sweep.Prune{sweep.OlderThan("events_deleted", db, 30*24*time.Hour, DeleteEvents)}
}

// EventsWait returns for how long the oldest event waits to be handled; 0: there is none.
func EventsWait(ctx context.Context, db postgres.DB) (wait time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce((SELECT clock_timestamp() - received_at FROM payment_events WHERE handled_at IS NULL ORDER BY received_at LIMIT 1), interval '0')`).
		Scan(&wait)
	return max(wait, 0), fault.At(err, "payment.EventsWait")
}

// DeleteEvents deletes up to limit handled events that were received longer ago than retention
// ago, from a moment on (nil: from the beginning). It returns the cursor.
func DeleteEvents(ctx context.Context, db postgres.DB, retention time.Duration, from *time.Time, limit int) (deleted int, next *time.Time, err error) {
	err = db.QueryRow(ctx, `
		WITH old AS MATERIALIZED (
			SELECT id, received_at FROM payment_events
			WHERE received_at >= coalesce($2, '-infinity'::timestamptz) AND received_at < statement_timestamp() - $3 * interval '1 second'
			  AND handled_at IS NOT NULL
			ORDER BY received_at LIMIT $1 FOR UPDATE SKIP LOCKED
		), deleted AS (
			DELETE FROM payment_events WHERE id = ANY(ARRAY(SELECT id FROM old))
		)
		SELECT count(*), coalesce(max(received_at), $2) FROM old`, limit, from, retention.Seconds()).Scan(&deleted, &next)
	return deleted, next, fault.At(err, "payment.DeleteEvents")
}

const (
	maxListed    = 1000        // objects in hand: a span with more is left for a short one
	shortestSpan = time.Second // what was made in it is taken whole
)

// errMany ends the listing of a span with too many objects.
var errMany = errors.New("payment: more objects of the provider than are taken at once")

// InSpans lists what was made at the provider in [from, to), span by span, the oldest first. store stores a
// span that ends at to: a listing that is cut off goes on after it.
func InSpans[T any](ctx context.Context, from, to time.Time, list func(ctx context.Context, from, to time.Time, yield func(T) error) error, store func(to time.Time, all []T) error) error {
	for span := to.Sub(from); from.Before(to); {
		end, limit := from.Add(span), maxListed
		if end.After(to) {
			end = to
		}
		isShort := end.Sub(from) <= shortestSpan
		if isShort {
			limit *= 100
		}
		var all []T
		err := list(ctx, from, end, func(one T) error {
			if len(all) == limit {
				return errMany
			}
			all = append(all, one)
			return nil
		})
		if errors.Is(err, errMany) && !isShort {
			span = shortestSpan // halving would cost a list each time, and a run that is cut off starts with the whole again
			continue
		}
		if err != nil {
			return err
		}
		slices.Reverse(all)
		if err := store(end, all); err != nil {
			return err
		}
		from = end
		if len(all) <= maxListed/4 {
			span *= 2
		}
	}
	return nil
}
