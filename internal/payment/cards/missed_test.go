package cards_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
)

// list is a provider that remembers events, the newest first.
type list struct {
	payprovider.Provider
	events []payprovider.Event
	fail   error
}

func (l *list) ListEvents(_ context.Context, from, to time.Time, _ []string, yield func(payprovider.Event) error) error {
	if l.fail != nil {
		return l.fail
	}
	for _, e := range slices.Backward(l.events) {
		if !e.CreatedAt.Before(from) && e.CreatedAt.Before(to) {
			if err := yield(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestMissedEventsAreListedInSpansAndNoteHowFarTheyCame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.newEvents()
	l := &list{}
	start := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
	for i := range 2500 { // more than are taken at once
		one := event(fmt.Sprintf("evt_%04d", i), "payment_intent.succeeded", "pi", "", "succeeded")
		one.CreatedAt = start.Add(time.Duration(i) * time.Second)
		one.Livemode = i == 7 // not for us: it does not hold up the others
		l.events = append(l.events, one)
	}
	b.store(e, l.events[100:200]...) // their webhooks have come
	found, err := e.ListMissed(t.Context(), l)
	if err != nil || found.More || found.Listed != 2500 || found.Stored != 2399 {
		t.Fatalf("%+v, %v", found, err)
	}
	if again, err := e.ListMissed(t.Context(), l); err != nil || again.Listed > 200 || again.Stored != 0 {
		t.Errorf("the second listing: %+v, %v", again, err)
	}
	l.fail = failed(payprovider.KindUnavailable, "")
	if _, err := e.ListMissed(t.Context(), l); err == nil {
		t.Error("a provider that is away is no empty list")
	}
	if woken := b.work(e); len(woken) != 0 || b.count(`SELECT count(*) FROM payment_events WHERE handled_at IS NULL`) != 0 {
		t.Error("events of a list are not worked off")
	}
}

// told adds an event that was made some time ago by our clock.
func (l *list) told(id string, ago time.Duration) {
	one := event(id, "payment_intent.succeeded", "pi", "", "succeeded")
	one.CreatedAt = time.Now().Add(-ago).Truncate(time.Second)
	l.events = append(l.events, one)
	slices.SortStableFunc(l.events, func(a, b payprovider.Event) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// To the provider, whose clock is behind ours, an event is new that is old by our clock.
func TestEventsAreFoundThoughOurClockIsAhead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, l := b.newEvents(), &list{}
	found := func(want int) cards.Missed {
		t.Helper()
		now, err := e.ListMissed(t.Context(), l)
		if err != nil || now.Stored != want || now.More {
			t.Fatalf("%+v, %v", now, err)
		}
		return now
	}
	l.told("evt_1", 20*time.Minute)
	found(1)
	l.told("evt_2", 20*time.Minute-time.Second)
	found(1)
	l.told("evt_late", 21*time.Minute) // it appears in the list when newer ones are there
	found(1)
	b.exec(`UPDATE payment_events_listed SET moved_at = moved_at - interval '11 minutes'`)
	l.told("evt_3", 19*time.Minute)
	found(1)
}

// Where nothing happens, what happened last is not listed again and again.
func TestAnIdleListingListsTheLastEventsOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, l := b.newEvents(), &list{}
	for i := range 100 {
		l.told(fmt.Sprintf("evt_%d", i), 20*time.Minute+time.Duration(i)*time.Second)
	}
	for _, want := range []int{100, 100, 1} {
		if want == 1 {
			b.exec(`UPDATE payment_events_listed SET moved_at = moved_at - interval '11 minutes'`)
		}
		if found, err := e.ListMissed(t.Context(), l); err != nil || found.Listed != want {
			t.Errorf("%d are listed, not %d, %v", found.Listed, want, err)
		}
	}
}

// An outage before the first event ever is no gap.
func TestTheFirstEventsAreFoundWhenNobodyHasListedForLong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, l := b.newEvents(), &list{}
	if found, err := e.ListMissed(t.Context(), l); err != nil || found.Listed != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	b.exec(`UPDATE payment_events_listed SET until = until - interval '5 hours', moved_at = moved_at - interval '5 hours'`) // as if it had been then
	l.told("evt_1", 3*time.Hour)
	if found, err := e.ListMissed(t.Context(), l); err != nil || found.Stored != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
}

// An event of another release is one, however often it is told.
func TestAnEventOfAnotherReleaseIsCountedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	e, l := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry), &list{}
	l.told("evt_1", time.Minute)
	l.told("evt_2", time.Minute)
	l.events[0].APIVersion = "2019-01-01"
	for range 3 {
		if _, err := e.ListMissed(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		b.store(e, l.events...)
	}
	if n := servers.Counted(t, registry, "triprize_payment_events_other_version_total", ""); n != 1 {
		t.Errorf("%v are counted", n)
	}
}
