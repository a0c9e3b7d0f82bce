package webhook_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"triprize/internal/domain/fault"
	"triprize/internal/lease"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

func TestAnEventArrivesOnceAndIsSignedByTheOldSecretToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	e, old := w.endpoint("shop", r.url)
	fresh := sender.NewSecret()
	rotate := func(secret string) {
		w.tx(func(tx pgx.Tx) error {
			return webhook.AddSecret(t.Context(), tx, e.ID, webhook.Seal(fixture.Key(t), e.ID, secret), time.Hour)
		})
	}
	rotate(fresh)
	subject := w.emit("shop", webhook.PurchaseCompleted, 1)[0]
	d := w.deliverer(4, unhurried)
	if result := w.run(d, e); result.Delivered != 1 || result.More {
		t.Errorf("got %+v", result)
	}
	if result := w.run(d, e); result.Delivered != 0 {
		t.Errorf("again: %+v", result)
	}
	got := r.messages()
	if len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	for _, secret := range []string{old, fresh} {
		key, _ := standardwebhooks.NewWebhook(secret)
		if err := key.Verify([]byte(got[0].body), got[0].header); err != nil {
			t.Error(err)
		}
	}
	var body struct {
		Type      string
		Timestamp time.Time
		Data      struct{ ID uuid.UUID }
	}
	delivery, attempts := w.only(e)
	if err := json.Unmarshal([]byte(got[0].body), &body); err != nil || body.Type != webhook.PurchaseCompleted || body.Data.ID != subject || !body.Timestamp.Equal(delivery.At) {
		t.Errorf("got %s, %v", got[0].body, err)
	}
	if got[0].id != delivery.EventID.String() || delivery.State != webhook.Delivered || delivery.Attempts != 1 || delivery.FinishedAt == nil ||
		len(attempts) != 1 || *attempts[0].Status != http.StatusOK || attempts[0].Error != nil {
		t.Errorf("got %+v, %+v", delivery, attempts)
	}
	w.clock.MoveOn(2 * time.Hour) // the old secret is over
	w.emit("shop", webhook.PurchaseCompleted, 1)
	w.run(d, e)
	last := r.messages()[1]
	if key, _ := standardwebhooks.NewWebhook(old); key.Verify([]byte(last.body), last.header) == nil {
		t.Error("the old secret still signs")
	}
}

func TestAnEndpointHearsOfItsOwnClientAndOfWhatItWants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	for _, c := range []struct {
		client string
		events []string
		want   int
	}{
		{"shop", []string{"*"}, 4}, {"shop", []string{"purchase.*"}, 2}, {"shop", []string{"purchase.failed"}, 1},
		{"shop", []string{"hold.*", "campaign.drawn"}, 2}, {"other", []string{"*"}, 1}, {"other", []string{"purchase.*"}, 0},
	} {
		e, _ := w.endpoint(c.client, r.url, c.events...)
		defer func() {
			if got := w.deliveries(e)[webhook.Pending]; got != c.want {
				t.Errorf("%s with %v: %d, want %d", c.client, c.events, got, c.want)
			}
		}()
	}
	w.emit("shop", webhook.PurchaseCompleted, 1)
	w.emit("shop", webhook.PurchaseFailed, 1)
	w.emit("shop", webhook.HoldExpired, 1)
	w.emit("", webhook.CampaignDrawn, 1)
	w.emit("nobody", webhook.PurchaseCompleted, 5)
	var stored int
	if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM webhook_events`).Scan(&stored); err != nil || stored != 4 {
		t.Errorf("%d events are stored, %v", stored, err)
	}
}

func TestADeadEndpointIsTriedWithOneEventAtATimeUntilItIsBack(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]func(http.ResponseWriter, message){
		"it says so":    status(http.StatusServiceUnavailable),
		"it is broken":  status(http.StatusInternalServerError),
		"it hangs up":   func(http.ResponseWriter, message) { panic(http.ErrAbortHandler) },
		"it redirects":  status(http.StatusFound),
		"it is unknown": status(http.StatusNotFound),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const events, concurrency = 40, 2
			w := newWorld(t)
			r := newReceiver(t, dead)
			e, _ := w.endpoint("shop", r.url)
			w.emit("shop", webhook.PurchaseCompleted, events)
			d := w.deliverer(concurrency, unhurried)
			if result := w.run(d, e); !result.Claimed || result.Delivered != 0 || result.More || !result.Slow {
				t.Errorf("the first turn: %+v", result)
			}
			tried := len(r.messages())
			if w.run(d, e).Claimed {
				t.Error("it is not paused")
			}
			const further = 5
			for range further {
				w.clock.MoveOn(2 * time.Hour)
				w.run(d, e)
			}
			if got := len(r.messages()); got != tried+further {
				t.Errorf("%d requests in %d turns", got-tried, further)
			}
			if got := w.now(e); got.FailingSince == nil || got.Failures != 1+further || got.DisabledAt != nil {
				t.Errorf("got %+v", got)
			}
			r.then(nil)
			w.clock.MoveOn(25 * time.Hour)
			if result := w.run(d, e); result.Delivered != events || result.More || result.Slow {
				t.Errorf("back: %+v", result)
			}
			if got := w.now(e); got.FailingSince != nil || got.Failures != 0 || got.PausedUntil != nil {
				t.Errorf("got %+v", got)
			}
			if r.most > concurrency {
				t.Errorf("%d requests at a time", r.most)
			}
		})
	}
}

// One event that its receiver cannot take is no trouble of the others, and is given up after
// the whole schedule.
func TestAnEventThatIsRefusedIsTriedThirteenTimesAndStopsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e0, _ := w.endpoint("shop", "http://127.0.0.1:1")
	poison := w.emit("shop", webhook.PurchaseFailed, 1)[0]
	w.delete(e0) // it only made the event
	r := newReceiver(t, func(rw http.ResponseWriter, m message) {
		if strings.Contains(m.body, poison.String()) {
			rw.WriteHeader(http.StatusBadRequest)
		}
	})
	e, _ := w.endpoint("shop", r.url)
	event := servers.Value[uuid.UUID](t, w.db, `SELECT id FROM webhook_events`)
	w.replay(e, event)
	d := w.deliverer(2, unhurried)
	for i := range len(webhook.Schedule) + 1 {
		w.emit("shop", webhook.PurchaseCompleted, 1)
		if result := w.run(d, e); result.Delivered != 1 || result.Failed != 1 {
			t.Fatalf("turn %d: %+v", i, result)
		}
		if result := w.run(d, e); result.Failed != 0 {
			t.Errorf("turn %d was repeated too soon: %+v", i, result)
		}
		if i < len(webhook.Schedule) {
			w.clock.MoveOn(webhook.Schedule[i] + webhook.Schedule[i]/10)
		}
	}
	delivery, attempts, err := webhook.GetDelivery(t.Context(), w.db, e.ID, event, 100)
	if err != nil || delivery.State != webhook.Failed || len(attempts) != 13 || delivery.Attempts != 13 || *attempts[0].Error != "answered 400" {
		t.Errorf("got %+v, %d attempts, %v", delivery, len(attempts), err)
	}
	if got := w.now(e); got.DisabledAt != nil || got.Failures != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAnEndpointThatFailsForDaysIsDisabledAndItsClientHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead, well := newReceiver(t, status(http.StatusBadGateway)), newReceiver(t, nil)
	e, _ := w.endpoint("shop", dead.url, "purchase.*")
	other, _ := w.endpoint("shop", well.url, "webhook-endpoint.*")
	stranger, _ := w.endpoint("stranger", well.url)
	w.emit("shop", webhook.PurchaseCompleted, 3)
	d := w.deliverer(2, unhurried)
	w.run(d, e)
	w.clock.MoveOn(71 * time.Hour)
	if w.run(d, e).Disabled {
		t.Error("it is disabled too soon")
	}
	w.clock.MoveOn(2 * time.Hour)
	if result := w.run(d, e); !result.Disabled {
		t.Errorf("got %+v", result)
	}
	if got := w.now(e); got.DisabledAt == nil || *got.DisabledReason != webhook.Failing {
		t.Fatalf("got %+v", got)
	}
	w.emit("shop", webhook.PurchaseCompleted, 2) // stored for a replay, and not delivered
	w.clock.MoveOn(30 * time.Hour)
	if w.run(d, e).Claimed {
		t.Error("something is sent to a disabled endpoint")
	}
	if n, err := webhook.FailDisabled(t.Context(), w.db, 100); n != 3 || err != nil {
		t.Errorf("%d failed, %v", n, err)
	}
	if result := w.run(d, other); result.Delivered != 1 || !strings.Contains(well.messages()[0].body, webhook.EndpointDisabled) {
		t.Errorf("its client: %+v, %v", result, well.messages())
	}
	if got := w.deliveries(stranger); len(got) != 0 {
		t.Errorf("a stranger: %v", got)
	}

	span := func(f webhook.Filter) (n int, err error) {
		w.tx(func(tx pgx.Tx) error {
			n, _, err = webhook.ReplaySpan(t.Context(), tx, w.now(e), webhook.Span{From: time.Now().Add(-time.Hour), To: time.Now().Add(1000 * time.Hour), Filter: f}, 100)
			return nil
		})
		return n, err
	}
	if n, err := span(webhook.Filter{}); n != 0 || fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("a replay to a disabled endpoint: %d, %v", n, err)
	}
	w.tx(func(tx pgx.Tx) error { _, err := webhook.Enable(t.Context(), tx, e.ID, ""); return err })
	if n, err := span(webhook.Filter{State: webhook.Failed}); n != 3 || err != nil {
		t.Errorf("%d replayed that failed, %v", n, err)
	}
	if n, err := span(webhook.Filter{}); n != 5 || err != nil {
		t.Errorf("%d replayed, %v", n, err)
	}
	dead.then(nil)
	w.clock.MoveOn(time.Second) // replays come at a rate
	if result := w.run(d, e); result.Delivered != 5 {
		t.Errorf("got %+v", result)
	}
}

func TestAReceiverThatIsGoneIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, status(http.StatusGone))
	e, _ := w.endpoint("shop", r.url)
	w.emit("shop", webhook.PurchaseCompleted, 10)
	d := w.deliverer(1, unhurried)
	if result := w.run(d, e); !result.Disabled {
		t.Errorf("got %+v", result)
	}
	w.clock.MoveOn(48 * time.Hour)
	if w.run(d, e).Claimed || len(r.messages()) != 1 {
		t.Errorf("%d requests", len(r.messages()))
	}
	if got := w.now(e); *got.DisabledReason != webhook.Gone {
		t.Errorf("got %+v", got)
	}
}

func TestRetryAfterIsKeptToUpToADay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		after       string
		early, late time.Duration
	}{
		{strconv.Itoa(3 * 3600), 3*time.Hour - time.Minute, 3 * time.Hour},
		{time.Now().Add(5 * time.Hour).UTC().Format(http.TimeFormat), 4 * time.Hour, 5 * time.Hour},
		{strconv.Itoa(90 * 24 * 3600), 24*time.Hour - time.Minute, 24 * time.Hour},
	} {
		w := newWorld(t)
		r := newReceiver(t, func(rw http.ResponseWriter, _ message) {
			rw.Header().Set("Retry-After", c.after)
			rw.WriteHeader(http.StatusTooManyRequests)
		})
		e, _ := w.endpoint("shop", r.url)
		w.emit("shop", webhook.PurchaseCompleted, 1)
		d := w.deliverer(2, unhurried)
		w.run(d, e)
		w.clock.MoveOn(c.early - 10*time.Minute) // the machine may have stood still for a while
		if w.run(d, e).Claimed {
			t.Errorf("%s: it was asked before", c.after)
		}
		w.clock.MoveOn(c.late - c.early + 11*time.Minute)
		if !w.run(d, e).Claimed || len(r.messages()) != 2 {
			t.Errorf("%s: it was not asked afterwards", c.after)
		}
	}
}

// A receiver that hangs costs one slot for one timeout, and gets slots apart from others.
func TestAReceiverThatHangsCostsOneTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const concurrency = 3
	hung := make(chan struct{})
	r := newReceiver(t, func(http.ResponseWriter, message) { <-hung })
	t.Cleanup(func() { close(hung) })
	e, _ := w.endpoint("shop", r.url)
	w.emit("shop", webhook.PurchaseCompleted, 50)
	d := w.deliverer(concurrency, 300*time.Millisecond)
	result := w.run(d, e)
	if result.Failed > concurrency || result.Delivered != 0 || result.More || !result.Slow {
		t.Errorf("got %+v", result)
	}
	if now := w.now(e); now.PausedUntil == nil || !now.Slow {
		t.Errorf("got %+v", now)
	}
	if task := w.now(e).Item().Task(); task.Kind != webhook.KindSlow {
		t.Errorf("got %+v", task)
	}
}

// However much waits for a dead endpoint, a healthy one is told in its next turn.
func TestAFloodForADeadEndpointDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	well := newReceiver(t, nil)
	dead, _ := w.endpoint("flood", "http://127.0.0.1:1/")
	e, _ := w.endpoint("shop", well.url)
	w.emit("flood", webhook.PurchaseCompleted, 10_000)
	w.emit("shop", webhook.PurchaseCompleted, 3)
	d := w.deliverer(4, unhurried)
	if result := w.run(d, dead); result.Failed > 4 || result.More {
		t.Errorf("the dead one: %+v", result)
	}
	due, err := webhook.Agenda.TakeDue(t.Context(), w.db, time.Hour, 10)
	if err != nil || len(due) != 1 || due[0].ID != e.ID {
		t.Errorf("due are %+v, %v", due, err)
	}
	if result := w.run(d, e); result.Delivered != 3 {
		t.Errorf("the healthy one: %+v", result)
	}
}

func TestOneTaskForAnEndpointAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	e, _ := w.endpoint("shop", r.url)
	w.emit("shop", webhook.PurchaseCompleted, 1)
	find := func() []lease.Item {
		due, err := webhook.Agenda.TakeDue(t.Context(), w.db, time.Hour, 10)
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	first := find()
	if again := find(); len(first) != 1 || len(again) != 0 {
		t.Errorf("%v, then %v", first, again)
	}
	d := w.deliverer(1, unhurried)
	w.run(d, e)
	w.emit("shop", webhook.PurchaseCompleted, 1)
	before := w.now(e)
	if err := d.Run(t.Context(), first[0]); err != nil || w.now(e).Version != before.Version {
		t.Errorf("the same task once more: %+v, %v", w.now(e), err)
	}
	if next := find(); len(next) != 1 || next[0] == first[0] {
		t.Errorf("after a turn: %v", next)
	}
}

// A document that is too large, or is gone, is replaced by its id.
func TestAMessageIsBounded(t *testing.T) {
	t.Parallel()
	e := webhook.Event{ID: uuid.New(), Type: webhook.CampaignDrawn, Subject: uuid.New(), At: time.Now()}
	for name, document := range map[string]json.RawMessage{"gone": nil, "large": json.RawMessage(`"` + strings.Repeat("x", webhook.MaxPayloadBytes) + `"`)} {
		body := webhook.Message(e, document)
		if len(body) > webhook.MaxPayloadBytes || !strings.Contains(string(body), `"truncated":true`) || !strings.Contains(string(body), e.Subject.String()) {
			t.Errorf("%s: %d bytes", name, len(body))
		}
	}
}

// A turn that is over ends with the requests that are under way, whatever is due: the rest
// of the round is for the next turn.
func TestATurnIsCutInTheMiddleOfARound(t *testing.T) {
	t.Parallel()
	const events, concurrency = 100, 4
	w := newWorld(t)
	w.turn = time.Nanosecond
	r := newReceiver(t, nil)
	e, _ := w.endpoint("shop", r.url)
	w.emit("shop", webhook.PurchaseCompleted, events)
	d := w.deliverer(concurrency, unhurried)
	for sent := 0; sent < events; sent += concurrency {
		if result := w.run(d, e); result.Delivered != concurrency || result.More != (sent+concurrency < events) {
			t.Fatalf("after %d: %+v", sent, result)
		}
	}
	if result := w.run(d, e); result.Delivered != 0 || result.More || len(r.messages()) != events {
		t.Errorf("at the end: %+v, %d arrived", result, len(r.messages()))
	}
}
