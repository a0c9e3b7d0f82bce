package cards

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"triprize/internal/domain/fault"
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
				if enqueued := client.Enqueue(ctx, EventsTask()); enqueued != nil {
					err = enqueued
				}
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

const (
	listOverlap = 2 * time.Minute     // events may appear in the list some time after their creation
	listSettled = 10 * time.Minute    // after which all that are older than the newest have appeared
	listFirst   = time.Hour           // how far back the first listing goes
	listOldest  = 29 * 24 * time.Hour // the provider forgets events after 30 days
	listSpans   = 50                  // spans that a run asks for
	maxStored   = 250                 // events in one statement
)

// MissedResult is what a listing has found.
type MissedResult struct {
	Listed int // events that the provider has listed
	Stored int // of these, those whose webhook had not come
}

// ListMissed asks the provider for events since the last listing, and stores those that
// are not stored yet. It goes forward in spans of time, and notes after each how far it
// has come: so a run that is cut off loses nothing, and the next one continues. It has come to
// the newest event that it has seen, by the provider's clock, and not to the present moment of
// ours: a clock of ours that is ahead would leave out what happens until the provider's is there.
// It fails with [sweep.ErrMore] when it has not come to the present.
func (e *Events) ListMissed(ctx context.Context, lister payprovider.Provider) (found MissedResult, err error) {
	until, since, now, ok, err := listedUntil(ctx, e.db)
	if err != nil {
		return found, err
	}
	from := until
	switch {
	case !ok:
		from = now.Add(-listFirst)
		if err := setListedUntil(ctx, e.db, from); err != nil {
			return found, err
		}
	case since < listSettled:
		from = until.Add(-listOverlap)
	}
	if oldest := now.Add(-listOldest); from.Before(oldest) {
		from = oldest
	}
	list := func(ctx context.Context, from, to time.Time, yield func(payprovider.Event) error) error {
		return lister.ListEvents(ctx, from, to, payprovider.EventTypes(e.reader), yield)
	}
	spans := 0
	err = payment.InSpans(ctx, from.Truncate(time.Second), now.Truncate(time.Second), list, func(_ time.Time, events []payprovider.Event) error {
		if spans++; spans > listSpans {
			return sweep.ErrMore
		}
		found.Listed += len(events)
		if len(events) == 0 {
			return nil
		}
		newest := events[len(events)-1].CreatedAt
		events = slices.DeleteFunc(events, func(event payprovider.Event) bool { return e.check(event) != nil }) // one that is not for us does not hold up others
		for some := range slices.Chunk(events, maxStored) {
			fresh, _, err := e.store(ctx, some, fromList)
			if found.Stored += fresh; err != nil {
				return err
			}
		}
		return setListedUntil(ctx, e.db, newest)
	})
	return found, fault.At(err, "cards.ListMissed")
}

// listedUntil returns up to when the provider's events were listed, by its clock, for how long
// that has stayed so, and the present moment of the database. ok is false when they never were.
func listedUntil(ctx context.Context, db postgres.DB) (until time.Time, since time.Duration, now time.Time, ok bool, err error) {
	err = db.QueryRow(ctx, `
		SELECT l.one IS NOT NULL, coalesce(l.until, now.at), coalesce(now.at - l.moved_at, interval '0'), now.at
		FROM (SELECT clock_timestamp() AS at) now LEFT JOIN payment_events_listed l ON true`).Scan(&ok, &until, &since, &now)
	return until, since, now, ok, fault.At(err, "cards.listedUntil")
}

// setListedUntil notes that the events before until were listed. It never goes back.
func setListedUntil(ctx context.Context, db postgres.DB, until time.Time) error {
	_, err := db.Exec(ctx, `
		INSERT INTO payment_events_listed (until) VALUES ($1)
		ON CONFLICT (one) DO UPDATE SET until = excluded.until, moved_at = excluded.moved_at WHERE payment_events_listed.until < excluded.until`, until)
	return fault.At(err, "cards.setListedUntil")
}
