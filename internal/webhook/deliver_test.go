package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"triprize/internal/domain/fault"
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
	subject := w.emit("shop", "purchase.completed", 1)[0]
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
	if err := json.Unmarshal([]byte(got[0].body), &body); err != nil || body.Type != "purchase.completed" || body.Data.ID != subject || !body.Timestamp.Equal(delivery.At) {
		t.Errorf("got %s, %v", got[0].body, err)
	}
	if got[0].id != delivery.EventID.String() || got[0].header.Get("Content-Type") != "application/json" || delivery.State != webhook.Delivered || delivery.Attempts != 1 || delivery.FinishedAt == nil ||
		len(attempts) != 1 || *attempts[0].Status != http.StatusOK || attempts[0].Error != nil {
		t.Errorf("got %+v, %+v", delivery, attempts)
	}
	w.clock.MoveOn(2 * time.Hour) // the old secret is over
	w.emit("shop", "purchase.completed", 1)
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
	w.emit("shop", "purchase.completed", 1)
	w.emit("shop", "purchase.failed", 1)
	w.emit("shop", "hold.expired", 1)
	w.emit("", "campaign.drawn", 1)
	w.emit("nobody", "purchase.completed", 5)
	var stored int
	if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM webhook_events`).Scan(&stored); err != nil || stored != 4 {
		t.Errorf("%d events are stored, %v", stored, err)
	}
}

// turn is a turn of the only worker, some time after the one before.
type turn struct {
	after time.Duration
	well  bool // the endpoint, from now on
	want  string
}

// turnOf runs a turn, and says what it has come to.
func (w *world) turnOf(d *webhook.Deliverer, e webhook.Endpoint) string {
	w.t.Helper()
	result, text := w.run(d, e), "nothing"
	if result.Claimed {
		text = fmt.Sprintf("%d arrived, %d failed", result.Delivered, result.Failed)
	}
	now := w.now(e)
	for word, is := range map[string]bool{", more is due": result.More, ", slow": now.Item().Task().Kind == webhook.KindSlow} {
		if is {
			text += word
		}
	}
	if now.FailingSince != nil {
		text += fmt.Sprintf(", failing %d times", now.Failures)
	}
	if now.PausedUntil != nil {
		text += ", paused"
	}
	if now.DisabledReason != nil {
		text += ", disabled: " + string(*now.DisabledReason)
	}
	return text
}

// One event at a time is tried while an endpoint is down, and all are sent when it is back.
func TestWhatAnEndpointDoesDecidesWhenItIsAskedAgain(t *testing.T) {
	t.Parallel()
	const first, again = "0 arrived, 1 failed, slow, failing 1 times, paused", "nothing, slow, failing 1 times, paused"
	down := []turn{{want: first}, {want: again}}
	for n := range 5 {
		down = append(down, turn{after: 2 * time.Hour, want: fmt.Sprintf("0 arrived, 1 failed, slow, failing %d times, paused", n+2)})
	}
	down = append(down, turn{after: 25 * time.Hour, well: true, want: "40 arrived, 0 failed"})
	refuses := slices.Concat([]turn{{want: strings.Replace(first, "1 failed", "16 failed", 1)}}, down[1:]) // a batch, which could have been of events that nobody can take
	asks := func(early, late time.Duration) []turn {                                                       // the machine may have stood still for a while
		return []turn{{want: first}, {after: early - 11*time.Minute, want: again}, {after: late - early + 13*time.Minute, want: strings.Replace(first, "1 times", "2 times", 1)}}
	}
	retryAfter := func(value string) func(http.ResponseWriter, message) {
		return func(rw http.ResponseWriter, _ message) {
			rw.Header().Set("Retry-After", value)
			rw.WriteHeader(http.StatusTooManyRequests)
		}
	}
	for name, c := range map[string]struct {
		answer  func(http.ResponseWriter, message) // nil: none
		timeout time.Duration
		events  int
		turns   []turn
	}{
		"it says that it is down":       {status(http.StatusServiceUnavailable), unhurried, 40, down},
		"it is broken":                  {status(http.StatusInternalServerError), unhurried, 40, refuses},
		"it hangs up":                   {func(http.ResponseWriter, message) { panic(http.ErrAbortHandler) }, unhurried, 40, down},
		"it redirects":                  {status(http.StatusFound), unhurried, 40, refuses},
		"it is unknown":                 {status(http.StatusNotFound), unhurried, 40, refuses},
		"it hangs: that is one timeout": {nil, 300 * time.Millisecond, 40, down[:2]},
		"it is gone":                    {status(http.StatusGone), unhurried, 40, []turn{{want: "0 arrived, 1 failed, disabled: gone"}, {after: 48 * time.Hour, want: "nothing, disabled: gone"}}},
		"it names seconds":              {retryAfter(strconv.Itoa(3 * 3600)), unhurried, 1, asks(3*time.Hour, 3*time.Hour)},
		"it names a time":               {retryAfter(time.Now().Add(5 * time.Hour).UTC().Format(http.TimeFormat)), unhurried, 1, asks(4*time.Hour, 5*time.Hour)},
		"it names more than a day":      {retryAfter(strconv.Itoa(90 * 24 * 3600)), unhurried, 1, asks(24*time.Hour, 24*time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.answer == nil {
				c.answer = func(http.ResponseWriter, message) { <-t.Context().Done() }
			}
			w := newWorld(t)
			r := newReceiver(t, c.answer)
			e, _ := w.endpoint("shop", r.url)
			w.emit("shop", "purchase.completed", c.events)
			d := w.deliverer(1, c.timeout)
			for i, turn := range c.turns {
				if w.clock.MoveOn(turn.after); turn.well {
					r.then(nil)
				}
				if got := w.turnOf(d, e); got != turn.want {
					t.Errorf("turn %d: %s, want %s", i, got, turn.want)
				}
				if i == 0 {
					w.putOff()
				}
			}
		})
	}
}

// One event that its receiver cannot take is no trouble of the others, and is given up after
// the whole schedule.
func TestAnEventThatIsRefusedIsTriedThirteenTimesAndStopsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var poison string
	e, _ := w.endpoint("shop", newReceiver(t, func(rw http.ResponseWriter, m message) {
		if strings.Contains(m.body, poison) {
			rw.WriteHeader(http.StatusBadRequest)
		}
	}).url)
	poison = w.emit("shop", "purchase.failed", 1)[0].String()
	event := servers.Value[uuid.UUID](t, w.db, `SELECT id FROM webhook_events`)
	d := w.deliverer(2, unhurried)
	for i := range len(webhook.Schedule) + 1 {
		w.emit("shop", "purchase.completed", 1)
		for _, want := range []string{"1 arrived, 1 failed", "0 arrived, 0 failed"} { // not again too soon
			if got := w.turnOf(d, e); got != want {
				t.Fatalf("turn %d: %s, want %s", i, got, want)
			}
			w.putOff()
		}
		if i < len(webhook.Schedule) {
			w.clock.MoveOn(webhook.Schedule[i] + webhook.Schedule[i]/10 + 2*time.Minute)
		}
	}
	delivery, attempts, err := webhook.GetDelivery(t.Context(), w.db, e.ID, event, 100)
	if err != nil || delivery.State != webhook.Failed || len(attempts) != 13 || delivery.Attempts != 13 || *attempts[0].Error != "answered 400" {
		t.Errorf("got %+v, %d attempts, %v", delivery, len(attempts), err)
	}
}

func TestAnEndpointThatFailsForDaysIsDisabledAndItsClientHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead, well := newReceiver(t, status(http.StatusBadGateway)), newReceiver(t, nil)
	e, _ := w.endpoint("shop", dead.url, "purchase.*")
	other, _ := w.endpoint("shop", well.url, "webhook-endpoint.*")
	stranger, _ := w.endpoint("stranger", well.url)
	w.emit("shop", "purchase.completed", 3)
	d := w.deliverer(1, unhurried)
	for _, turn := range []turn{{want: "0 arrived, 1 failed, slow, failing 1 times, paused"}, {after: 71 * time.Hour, want: "0 arrived, 1 failed, slow, failing 2 times, paused"},
		{after: 2 * time.Hour, want: "0 arrived, 1 failed, slow, failing 3 times, paused, disabled: failing"}} {
		w.clock.MoveOn(turn.after)
		if got := w.turnOf(d, e); got != turn.want {
			t.Errorf("after %s: %s, want %s", turn.after, got, turn.want)
		}
	}
	w.emit("shop", "purchase.completed", 2) // stored for a replay, and not delivered
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

	for _, c := range []struct {
		enabled bool
		filter  webhook.Filter
		want    int
		code    fault.Code
	}{{false, webhook.Filter{}, 0, fault.StateConflict}, {true, webhook.Filter{State: webhook.Failed}, 3, ""}, {true, webhook.Filter{}, 5, ""}} {
		w.tx(func(tx pgx.Tx) error {
			if c.enabled {
				if _, err := webhook.Enable(t.Context(), tx, e.ID, ""); err != nil {
					return err
				}
			}
			n, _, err := webhook.ReplaySpan(t.Context(), tx, w.nowIn(tx, e), webhook.Span{From: time.Now().Add(-time.Hour), To: time.Now().Add(1000 * time.Hour), Filter: c.filter}, 100)
			if n != c.want || fault.CodeOf(err) != c.code {
				t.Errorf("enabled: %t, %+v: %d replayed, %v", c.enabled, c.filter, n, err)
			}
			return nil
		})
	}
	dead.then(nil)
	w.clock.MoveOn(time.Second) // replays come at a rate
	if result := w.run(d, e); result.Delivered != 5 {
		t.Errorf("got %+v", result)
	}
}

// A document that is too large, or is gone, is replaced by its id.
func TestAMessageIsBounded(t *testing.T) {
	t.Parallel()
	e := webhook.Event{ID: uuid.New(), Type: "campaign.drawn", Subject: uuid.New(), At: time.Now()}
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
	w.emit("shop", "purchase.completed", events)
	d := w.deliverer(concurrency, unhurried)
	for sent := 0; sent < events; sent += concurrency {
		if result := w.run(d, e); result.Delivered != concurrency || result.More != (sent+concurrency < events) {
			t.Fatalf("after %d: %+v", sent, result)
		}
	}
	if result := w.run(d, e); result.Delivered != 0 || result.More || len(r.messages()) != events || r.most > concurrency {
		t.Errorf("at the end: %+v, %d arrived, %d at a time", result, len(r.messages()), r.most)
	}
}
