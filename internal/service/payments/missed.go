package payments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/store/payment"
)

const (
	listOverlap = 2 * time.Minute     // events may appear in the list some time after their creation
	listSettled = 10 * time.Minute    // after which all that are older than the newest have appeared
	listFirst   = time.Hour           // how far back the first listing goes
	listOldest  = 29 * 24 * time.Hour // the provider forgets events after 30 days
	listMost    = 1000                // events in hand at once: a span with more is halved
	listSpans   = 50                  // spans that a run asks for
	storeMost   = 250                 // events in one statement
)

// Missed is what a listing has found.
type Missed struct {
	Listed int  // events that the provider has told of
	Stored int  // of these, those whose webhook had not come
	More   bool // the listing has not come to the present
}

// errMany ends the listing of a span with too many events.
var errMany = errors.New("payments: more events than are taken at once")

// ListMissed asks the provider for events since the last listing, and stores those that
// are not stored yet. It goes forward in spans of time, and notes after each how far it
// has come: so a run that is cut off loses nothing, and the next one goes on. It has come to
// the newest event that it has seen, by the provider's clock, and not to the present moment of
// ours: a clock of ours that is ahead would leave out what happens until the provider's is there.
func (e *Events) ListMissed(ctx context.Context, lister payprovider.Provider) (found Missed, err error) {
	until, since, now, ok, err := payment.Listed(ctx, e.db)
	if err != nil {
		return found, err
	}
	from := until
	switch {
	case !ok:
		from = now.Add(-listFirst)
		if err := payment.SetListed(ctx, e.db, from); err != nil {
			return found, err
		}
	case since < listSettled:
		from = until.Add(-listOverlap)
	}
	if oldest := now.Add(-listOldest); from.Before(oldest) {
		from = oldest
	}
	from, end := from.Truncate(time.Second), now.Truncate(time.Second)
	span := end.Sub(from)
	for range listSpans {
		if !from.Before(end) {
			return found, nil
		}
		to := from.Add(span)
		if to.After(end) {
			to = end
		}
		events, err := e.list(ctx, lister, from, to)
		if errors.Is(err, errMany) && to.Sub(from) > time.Second {
			span = max(to.Sub(from)/2, time.Second).Truncate(time.Second)
			continue
		}
		if err != nil {
			return found, fmt.Errorf("payments.ListMissed: %w", err)
		}
		stored, err := e.storeListed(ctx, events)
		found.Listed += len(events)
		found.Stored += stored
		if err != nil {
			return found, err
		}
		if len(events) > 0 {
			if err := payment.SetListed(ctx, e.db, events[len(events)-1].CreatedAt); err != nil {
				return found, err
			}
		}
		from, span = to, max(end.Sub(to), time.Second)
	}
	found.More = from.Before(end)
	return found, nil
}

// list returns the events of a span, the oldest first. A single second is taken whole.
func (e *Events) list(ctx context.Context, lister payprovider.Provider, from, to time.Time) ([]payprovider.Event, error) {
	most := listMost
	if to.Sub(from) <= time.Second {
		most = listMost * 100
	}
	var events []payprovider.Event
	err := lister.ListEvents(ctx, from, to, payprovider.EventTypes(e.reader), func(event payprovider.Event) error {
		if len(events) == most {
			return errMany
		}
		events = append(events, event)
		return nil
	})
	slices.Reverse(events)
	return events, err
}

// storeListed stores events of a list. One that is not for us does not hold up others.
func (e *Events) storeListed(ctx context.Context, events []payprovider.Event) (stored int, err error) {
	events = slices.DeleteFunc(events, func(event payprovider.Event) bool { return e.check(event) != nil })
	for some := range slices.Chunk(events, storeMost) {
		inserted, err := e.store(ctx, some, payment.FromList)
		stored += len(inserted.Fresh)
		if err != nil {
			return stored, err
		}
	}
	return stored, nil
}
