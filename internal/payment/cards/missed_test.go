package cards_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/testkit/provider"
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
	e, registry := b.countedEvents()
	l := &list{}
	start := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
	for i := range 2500 { // more than are taken at once
		one := event(fmt.Sprintf("evt_%04d", i), "payment_intent.succeeded", "pi", "", "succeeded")
		one.CreatedAt = start.Add(time.Duration(i) * time.Second)
		one.Livemode = i == 7 // not for us: it does not hold up the others
		if i >= 2490 {
			one.APIVersion = "2019-01-01"
		}
		l.events = append(l.events, one)
	}
	b.store(e, l.events[100:200]...) // their webhooks have come
	found, err := e.ListMissed(t.Context(), l)
	if err != nil || found.Listed != 2500 || found.Stored != 2399 {
		t.Fatalf("%+v, %v", found, err)
	}
	if again, err := e.ListMissed(t.Context(), l); err != nil || again.Listed > 200 || again.Stored != 0 {
		t.Errorf("the second listing: %+v, %v", again, err)
	}
	if b.store(e, l.events[2480:]...); servers.Counted(t, registry, "triprize_payment_events_other_version_total", "") != 10 {
		t.Error("an event of another release is not counted once, however often it is told")
	}
	l.fail = provider.Failed(payprovider.KindUnavailable, "")
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

// To the provider, whose clock is behind ours, an event is new that is old by our clock. Where nothing happens, what
// happened last is not listed again and again.
func TestAListingTakesUpWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	const later, muchLater = `moved_at = moved_at - interval '11 minutes'`, `until = until - interval '5 hours', moved_at = moved_at - interval '5 hours'`
	for name, steps := range map[string][]struct {
		told           time.Duration // a new event that is so old
		set            string        // as if time had passed
		listed, stored int
	}{
		"our clock is ahead":                       {{20 * time.Minute, "", 1, 1}, {20*time.Minute - time.Second, "", 2, 1}, {21 * time.Minute, "", 3, 1}, {19 * time.Minute, later, 2, 1}},
		"nothing more happens":                     {{20 * time.Minute, "", 1, 1}, {21 * time.Minute, "", 2, 1}, {0, "", 2, 0}, {0, later, 1, 0}},
		"an outage before the first event is none": {{0, "", 0, 0}, {3 * time.Hour, muchLater, 1, 1}},
	} {
		b, l := newBench(t), &list{}
		e := b.newEvents()
		for i, step := range steps {
			if step.told != 0 {
				l.told(fmt.Sprintf("evt_%d", i), step.told)
			}
			if step.set != "" {
				b.exec(`UPDATE payment_events_listed SET ` + step.set)
			}
			if found, err := e.ListMissed(t.Context(), l); err != nil || found.Listed != step.listed || found.Stored != step.stored {
				t.Errorf("%s, listing %d: %+v, %v", name, i, found, err)
			}
		}
	}
}
