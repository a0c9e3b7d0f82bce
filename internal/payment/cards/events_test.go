package cards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
)

func (b *bench) newEvents() *cards.Events {
	e, _ := b.countedEvents()
	return e
}

func (b *bench) countedEvents() (*cards.Events, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	return cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(b.t), registry), registry
}

// event is an event about an intent.
func event(id, name, intent, purchase, status string) payprovider.Event {
	return payprovider.Event{ID: id, Type: name, APIVersion: stripe.APIVersion, CreatedAt: time.Now(), ObjectID: intent, IntentID: intent,
		Metadata: map[string]string{"purchase_id": purchase}, Status: status, Payload: []byte(`{"id": "` + id + `"}`)}
}

// store stores events and returns how many are to be worked off.
func (b *bench) store(e *cards.Events, events ...payprovider.Event) (open int) {
	b.t.Helper()
	open, err := e.Store(context.Background(), events)
	servers.NoError(b.t, err)
	return open
}

func (b *bench) work(e *cards.Events) (woken []payment.Ref) {
	b.t.Helper()
	for {
		done, err := e.Process(context.Background())
		servers.NoError(b.t, err)
		woken = append(woken, done.Payments...)
		if !done.More {
			return woken
		}
	}
}

func (b *bench) count(sql string, args ...any) int {
	b.t.Helper()
	return servers.Value[int](b.t, b.db, sql, args...)
}

// Every event comes twice, in any order, from many senders at once; many workers work
// them off meanwhile. Phases are noted as they are seen: none goes back.
func TestEventsShuffledAndDoubledAreOneEach(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const each = 50 // events of one payment
	all := 100 * property.Cases(t)
	var ids []uuid.UUID
	var events []payprovider.Event
	for n := range all / each {
		id := b.reserve("pm_action")
		b.want(id, cards.Waits, payment.Action)
		ids = append(ids, id)
		intent := deref(b.get(id).IntentID)
		for i := range each {
			kind := []string{"payment_intent.amount_capturable_updated", "payment_intent.requires_action", "payment_intent.created", "charge.succeeded", "a.type.of.tomorrow"}[i%5]
			status := []string{"requires_capture", "requires_action", "requires_confirmation", "succeeded", ""}[i%5]
			events = append(events, event(fmt.Sprintf("evt_%d_%d", n, i), kind, intent, id.String(), status))
		}
		b.sim.Move(id.String(), payprovider.RequiresAction, payprovider.RequiresCapture) // what the events tell of
	}
	events = append(events, events...)
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	e := b.newEvents()
	var open, woken sync.Map
	wake := func(refs []payment.Ref) {
		for _, ref := range refs {
			woken.Store(ref.PurchaseID, true)
		}
	}
	var senders, workers sync.WaitGroup
	for i, some := range slices.Collect(slices.Chunk(events, 500)) {
		senders.Go(func() {
			n, err := e.Store(context.Background(), some)
			if err != nil {
				t.Error(err)
			}
			open.Store(i, n)
		})
	}
	sent, end := context.WithCancel(t.Context())
	go func() { senders.Wait(); end() }()
	for range 4 {
		workers.Go(func() {
			for sent.Err() == nil {
				done, err := e.Process(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				wake(done.Payments)
			}
		})
	}
	workers.Wait()
	wake(b.work(e)) // what is open now
	total := 0
	open.Range(func(_, n any) bool { total += n.(int); return true })
	if stored := b.count(`SELECT count(*) FROM payment_events WHERE handled_at IS NOT NULL`); total != all/5 || stored != all {
		t.Errorf("%d were to be worked off and %d are stored and handled, of %d", total, stored, all)
	}
	for outcome, want := range map[string]int{"woken": all / 5, "ignored": 3 * all / 5, "unknown": all / 5} {
		if n := b.count(`SELECT count(*) FROM payment_events WHERE outcome = $1`, outcome); n != want {
			t.Errorf("%d events were %s, want %d", n, outcome, want)
		}
	}
	due, err := payment.Leases.TakeDue(t.Context(), b.db, time.Hour, all)
	if err != nil || len(due) != len(ids) {
		t.Errorf("%d payments are due, of %d, %v", len(due), len(ids), err)
	}
	for _, id := range ids {
		if _, ok := woken.Load(id); !ok {
			t.Errorf("payment %s was not woken", id)
		}
		b.want(id, cards.Settle, payment.Captured)
	}
	b.store(e, event("evt_late", "payment_intent.requires_action", deref(b.get(ids[0]).IntentID), ids[0].String(), "requires_action"))
	b.work(e)
	b.want(ids[0], cards.Settle, payment.Captured) // an event that is late moves nothing back
}

func TestAnEventThatTellsWhatIsKnownWakesNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.want(id, cards.Settle, payment.Captured)
	b.settle(id)
	e, registry := b.countedEvents()
	intent := deref(b.get(id).IntentID)
	if open := b.store(e, event("evt_1", "payment_intent.succeeded", intent, id.String(), "succeeded"), event("evt_0", "charge.captured", intent, id.String(), "succeeded"),
		event("evt_new", "a.type.of.tomorrow", intent, id.String(), "succeeded")); open != 0 {
		t.Errorf("%d events are to be worked off", open)
	}
	if n := b.count(`SELECT count(*) FROM payment_events WHERE handled_at IS NOT NULL AND outcome = CASE WHEN id = 'evt_new' THEN 'unknown' ELSE 'ignored' END`); n != 3 {
		t.Errorf("%d events are handled with the commit that stores them", n)
	}
	if woken := b.work(e); len(woken) != 0 || b.get(id).DueAt != nil {
		t.Errorf("woken: %v, due %v", woken, b.get(id).DueAt)
	}
	for name, told := range map[string]payprovider.Event{ // what is not stored as it is told must be looked at
		"another status":  event("evt_3", "payment_intent.processing", intent, id.String(), "processing"),
		"no status":       event("evt_4", "payment_intent.succeeded", intent, id.String(), ""),
		"another intent":  event("evt_5", "payment_intent.succeeded", "pi_of_a_stranger", id.String(), "succeeded"),
		"a refund of it":  event("evt_6", "refund.updated", intent, id.String(), "succeeded"),
		"a dispute of it": event("evt_7", "charge.dispute.created", intent, id.String(), "succeeded"),
	} {
		if open := b.store(e, told); open != 1 {
			t.Errorf("%s: %d events are to be worked off", name, open)
		}
	}
	if woken := b.work(e); len(woken) != 1 || woken[0].PurchaseID != id || servers.Counted(t, registry, "triprize_payment_orphaned_intents_total", "") != 1 {
		t.Errorf("woken: %v, and not one orphaned intent is counted", woken)
	}
	b.store(e, event("evt_2", "payment_intent.succeeded", "pi_of_a_stranger", uuid.NewString(), "succeeded"))
	if woken := b.work(e); len(woken) != 0 {
		t.Errorf("woken: %v", woken)
	}
}

func TestWhatIsNotForUsIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := b.newEvents()
	for name, change := range map[string]func(*payprovider.Event){
		"live":    func(e *payprovider.Event) { e.Livemode = true },
		"account": func(e *payprovider.Event) { e.Account = "acct_1" },
		"no id":   func(e *payprovider.Event) { e.ID = "" },
		"zero id": func(e *payprovider.Event) { e.ID = "evt_\x00" },
		"no type": func(e *payprovider.Event) { e.Type = "" },
	} {
		bad := event("evt_bad", "payment_intent.succeeded", "pi_1", uuid.NewString(), "succeeded")
		change(&bad)
		if _, err := e.Store(t.Context(), []payprovider.Event{event("evt_good", "payment_intent.succeeded", "pi_1", "", ""), bad}); !errors.Is(err, cards.ErrEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.count(`SELECT count(*) FROM payment_events`); n != 0 {
		t.Errorf("%d are stored", n)
	}
	odd := event("evt_odd", "payment_intent.succeeded", "pi_\x00\xff", "no uuid", "\xff")
	odd.Payload, odd.CreatedAt, odd.APIVersion = []byte("\x00\xff"), time.Time{}, "2019-01-01"
	if b.store(e, odd) != 1 || b.store(e, odd) != 0 {
		t.Error("what cannot be text is not stored once")
	}
}

func TestTheWaitOfTheQueueIsThatOfTheOldestNewPayment(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	waits := func() time.Duration {
		wait, err := payment.QueueWait(t.Context(), b.db)
		servers.NoError(t, err)
		return wait
	}
	nobody, id := waits(), b.reserve("pm_card_visa")
	b.exec(`UPDATE payments SET created_at = created_at - interval '10 minutes'`)
	one := waits()
	b.want(id, cards.Settle, payment.Captured)
	open, err := payment.OpenByPhase(t.Context(), b.db)
	if paid := waits(); nobody != 0 || one < 10*time.Minute || paid != 0 || err != nil || len(open) != 1 || open[payment.Captured] != 1 {
		t.Errorf("%s, %s, and when it is being paid %s; open are %v, %v", nobody, one, paid, open, err)
	}
}
