package cards_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
)

// refundEvent is an event about a refund; ours is the id of our refund, if we have made it.
func refundEvent(id, name, refund, intent, status, ours string) payprovider.Event {
	metadata := map[string]string{}
	if ours != "" {
		metadata["refund_id"] = ours
	}
	object := "refund"
	if strings.HasPrefix(refund, "ch_") {
		object = "charge"
	}
	payload := fmt.Sprintf(`{"id":%q,"data":{"object":{"object":%q,"id":%q,"amount":1200,"currency":"jpy","metadata":{"refund_id":%q}}}}`, id, object, refund, ours)
	return payprovider.Event{ID: id, Type: name, APIVersion: stripe.APIVersion, CreatedAt: time.Now(), ObjectID: refund, IntentID: intent,
		Metadata: metadata, Status: status, Payload: []byte(payload)}
}

// countOutOfBand reads how many refunds by others are counted with a label.
func countOutOfBand(t *testing.T, registry *prometheus.Registry, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "triprize_payment_out_of_band_refunds_total" && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// An operator has said that a payment is captured, because the provider's answer was lost: what is
// refunded of it by hand is money of ours all the same.
func TestARefundByHandOfAPaymentThatWasResolvedAsPaidIsNoted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), prometheus.NewRegistry())
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Conclude, payment.Captured).IntentID
	b.exec(`UPDATE payments SET intent_status = 'requires_capture', resolved_as = 'paid', resolved_by = 'operator:ops', resolve_reason = 'captured, says the dashboard' WHERE purchase_id = $1`, id)
	b.conclude(id)
	b.store(e, refundEvent("evt_1", "refund.created", "re_hand", intent, "succeeded", ""))
	b.work(e)
	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band' AND provider_id = 're_hand'`); n != 1 {
		t.Errorf("%d are noted", n)
	}
}

// Somebody refunds a settled purchase at the provider by hand: no refund here knows of it.
func TestARefundThatIsNotOursIsNotedOnceWhenItComes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry)
	counted := func(label string) float64 { return countOutOfBand(t, registry, label) }
	settled := func() (id uuid.UUID, intent string) {
		id = b.reserve("pm_card_visa")
		intent = *b.want(id, cards.Conclude, payment.Captured).IntentID
		b.conclude(id)
		return id, intent
	}
	kept, intent := settled()
	returned, itsIntent := settled()
	b.exec(`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT gen_random_uuid(), purchase_id, 1, campaign_id, 'buyer', 'card', amount, currency, 'cancelled', 'failed' FROM payments WHERE purchase_id = $1`, returned)
	unpaid := b.reserve("pm_action")
	itsOwn := *b.want(unpaid, cards.Waits, payment.Action).IntentID

	b.store(e,
		refundEvent("evt_1", "refund.created", "re_hand", intent, "pending", ""),
		refundEvent("evt_2", "refund.updated", "re_hand", intent, "succeeded", ""),
		refundEvent("evt_3", "charge.refunded", "ch_1", intent, "succeeded", ""),
		refundEvent("evt_4", "refund.created", "re_strange", "pi_strange", "succeeded", uuid.NewString()),
		refundEvent("evt_5", "refund.failed", "re_failed", intent, "failed", ""),
		refundEvent("evt_6", "refund.created", "re_known", itsIntent, "succeeded", ""),
		refundEvent("evt_7", "refund.created", "re_released", itsOwn, "succeeded", ""), // of money that was never captured
		refundEvent("evt_8", "refund.created", "re_strange", "pi_strange", "succeeded", ""),
		refundEvent("evt_13", "refund.created", "re_odd", intent, "lost", ""))
	b.work(e)
	b.store(e, refundEvent("evt_9", "refund.updated", "re_hand", intent, "failed", ""), refundEvent("evt_10", "charge.refund.updated", "re_hand", intent, "succeeded", ""))
	b.work(e)
	b.store(e, refundEvent("evt_11", "refund.failed", "re_hand", intent, "failed", ""), refundEvent("evt_12", "refund.created", "re_failed", intent, "pending", ""))
	b.work(e)

	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band'`); n != 3 || counted("none") != 1 || counted("known") != 1 {
		t.Errorf("%d are recorded, counted are %g and %g", n, counted("none"), counted("known"))
	}
	for id, want := range map[uuid.UUID]string{kept: "refunded-out-of-band(re_hand of 1200 JPY was made at the provider, and not by us)", returned: "refunded-out-of-band(re_known "} {
		if steps := stepsOf(t, b.db, id); strings.Count(steps, "refunded-out-of-band") != 1 || !strings.Contains(steps, want) {
			t.Errorf("the timeline says %s", steps)
		}
	}
	if steps := stepsOf(t, b.db, kept); strings.Count(steps, "out-of-band-refund-failed") != 1 ||
		!strings.Contains(steps, "out-of-band-refund-failed(re_hand of 1200 JPY is failed at the provider: that money was not refunded)") {
		t.Errorf("the timeline of one that was given nothing back says %s", steps)
	}
	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band' AND state = 'failed'`); n != 2 { // also after later news of them
		t.Errorf("%d have failed", n)
	}
	if steps := stepsOf(t, b.db, unpaid); strings.Contains(steps, "elsewhere") {
		t.Errorf("the timeline of an unpaid one says %s", steps)
	}
	if n := b.count(`SELECT count(*) FROM payment_events WHERE outcome = 'recorded'`); n != 7 {
		t.Errorf("%d events are recorded", n)
	}
	if n := b.count(`SELECT count(*) FROM payment_events WHERE outcome = 'woken'`); n != 1 { // re_known: ours is made due
		t.Errorf("%d events have woken a refund of ours", n)
	}
}

// What is counted and said is in the books: a commit that fails counts nothing.
func TestARefundByOthersIsCountedWhenItIsCommitted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry)
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Conclude, payment.Captured).IntentID
	b.conclude(id)
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
	b.exec(`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON payment_steps DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	failed := refundEvent("evt_2", "refund.failed", "re_hand", intent, "failed", "") // comes first, and in the same batch
	made := refundEvent("evt_1", "refund.created", "re_hand", intent, "succeeded", "")
	made.Payload = bytes.ReplaceAll(made.Payload, []byte("jpy"), []byte("eur"))
	failed.Payload = bytes.ReplaceAll(failed.Payload, []byte("jpy"), []byte("eur"))
	b.store(e, failed)
	b.store(e, made)
	if _, err := e.Work(t.Context()); err == nil || countOutOfBand(t, registry, "none") != 0 {
		t.Errorf("%v, and counted are %g", err, countOutOfBand(t, registry, "none"))
	}
	b.exec(`DROP TRIGGER refuse ON payment_steps`)
	b.work(e)
	if n := countOutOfBand(t, registry, "none"); n != 1 {
		t.Errorf("counted are %g", n)
	}
	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band' AND state = 'failed'`); n != 1 {
		t.Errorf("%d have failed", n)
	}
	steps := stepsOf(t, b.db, id)
	if was, is := strings.Index(steps, "refunded-out-of-band(re_hand of 12.00 EUR was made"), strings.Index(steps, "out-of-band-refund-failed(re_hand of 12.00 EUR is failed"); was < 0 || is < was {
		t.Errorf("the timeline says %s", steps)
	}
}

// Ours is not out of band, unless nobody here knows it: a database that was restored has forgotten it.
func TestARefundUnderAnIdOfOursIsOursOnlyWhenWeHaveIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), prometheus.NewRegistry())
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Conclude, payment.Captured).IntentID
	b.conclude(id)
	ours := uuid.New()
	b.exec(`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT $2, purchase_id, 1, campaign_id, 'buyer', 'card', amount, currency, 'cancelled', 'open' FROM payments WHERE purchase_id = $1`, id, ours)
	b.store(e, refundEvent("evt_1", "refund.created", "re_1", intent, "pending", ours.String()))
	b.work(e)
	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band'`); n != 0 {
		t.Errorf("%d of our own are recorded", n)
	}
	b.store(e, refundEvent("evt_2", "refund.created", "re_2", intent, "succeeded", uuid.NewString()))
	b.work(e)
	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band' AND provider_id = 're_2'`); n != 1 {
		t.Errorf("%d are recorded", n)
	}
}

// Events come in any order: one that is late makes nothing of what is over.
func TestLateNewsOfARefundTakeNothingBack(t *testing.T) {
	t.Parallel()
	for told, want := range map[string]string{
		"pending": "pending", "pending requires_action": "requires_action", "succeeded pending": "succeeded", "succeeded failed": "failed", "failed succeeded": "failed",
		"canceled pending": "canceled", "requires_action succeeded": "succeeded",
	} {
		b := newBench(t)
		e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), prometheus.NewRegistry())
		id := b.reserve("pm_card_visa")
		intent := *b.want(id, cards.Conclude, payment.Captured).IntentID
		b.conclude(id)
		for i, status := range strings.Fields(told) {
			b.store(e, refundEvent(fmt.Sprintf("evt_%d", i), "refund.updated", "re_hand", intent, status, ""))
			b.work(e)
		}
		var state string
		if err := b.db.QueryRow(t.Context(), `SELECT state FROM refunds WHERE provider_id = 're_hand'`).Scan(&state); err != nil || state != want {
			t.Errorf("%s: it is %s, %v", told, state, err)
		}
	}
}

// Where one was resolved by hand, an event is no proof: it says nothing and records nothing.
func TestAnEventAboutWhatWasResolvedByHandIsNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry)
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Conclude, payment.Captured).IntentID
	b.conclude(id)
	ours := uuid.New()
	b.exec(`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, resolved_by, resolve_reason, finished_at, provider_id)
		SELECT $2, purchase_id, 1, campaign_id, 'buyer', 'card', amount, currency, 'cancelled', 'resolved', 'operator:ops', 'by bank', clock_timestamp(), 're_1' FROM payments WHERE purchase_id = $1`, id, ours)
	b.store(e, refundEvent("evt_1", "refund.created", "re_1", intent, "pending", ours.String()), refundEvent("evt_2", "refund.created", "re_2", intent, "succeeded", ""))
	b.work(e)
	if n := b.count(`SELECT count(*) FROM refunds WHERE reason = 'out-of-band'`); n != 0 || b.count(`SELECT count(*) FROM refunds WHERE due_at <= clock_timestamp() AND state = 'resolved'`) != 1 {
		t.Errorf("%d are recorded, or ours is not due", n)
	}
	if steps := stepsOf(t, b.db, id); strings.Contains(steps, "out-of-band") || countOutOfBand(t, registry, "none")+countOutOfBand(t, registry, "known") != 0 {
		t.Errorf("the timeline says %s", steps)
	}
}

// Somebody refunds at the provider what a worker has captured and not stored yet: the event is worked off with the money.
func TestARefundByHandBeforeTheCaptureIsInTheBooksIsNotedWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	registry := prometheus.NewRegistry()
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry)
	outcome := func(id string) (outcome string) {
		t.Helper()
		if err := b.db.QueryRow(t.Context(), `SELECT coalesce(outcome, 'open') FROM payment_events WHERE id = $1`, id).Scan(&outcome); err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	unpaid := b.reserve("pm_action")
	itsOwn := *b.want(unpaid, cards.Waits, payment.Action).IntentID
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Conclude, payment.Captured).IntentID
	b.exec(`UPDATE payments SET phase = 'capturing', received = 0 WHERE purchase_id = $1`, id)
	b.store(e, refundEvent("evt_1", "refund.created", "re_hand", intent, "succeeded", ""), refundEvent("evt_2", "refund.created", "re_released", itsOwn, "succeeded", ""))
	b.work(e)
	if outcome("evt_1") != "uncaptured" || outcome("evt_2") != "uncaptured" || countOutOfBand(t, registry, "none") != 0 {
		t.Errorf("before the capture they are %s and %s", outcome("evt_1"), outcome("evt_2"))
	}
	b.exec(`UPDATE payments SET phase = 'captured', received = amount WHERE purchase_id = $1`, id)
	var q pgx.Batch
	payment.QueueConclude(&q, []payment.Conclusion{{PurchaseID: id, Version: b.get(id).Version, From: payment.Captured, To: payment.Settled}})
	if err := b.db.SendBatch(t.Context(), &q).Close(); err != nil {
		t.Fatal(err)
	}
	b.work(e)
	if outcome("evt_1") != "recorded" || outcome("evt_2") != "uncaptured" || countOutOfBand(t, registry, "none") != 1 {
		t.Errorf("with the capture they are %s and %s, counted are %g", outcome("evt_1"), outcome("evt_2"), countOutOfBand(t, registry, "none"))
	}
	if steps := stepsOf(t, b.db, id); !strings.Contains(steps, "refunded-out-of-band(re_hand of 1200 JPY") {
		t.Errorf("the timeline says %s", steps)
	}
}
