package cards_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

// about is an event about a refund or dispute of an intent.
func about(id, name, object, intent string) payprovider.Event {
	return payprovider.Event{ID: id, Type: name, APIVersion: stripe.APIVersion, CreatedAt: time.Now(), ObjectID: object, IntentID: intent, Payload: []byte(`{}`)}
}

// heard works off an event, and what it has woken. It returns what became of the event.
func (b *bench) heard(e *cards.Events, id, name, object, intent string) string {
	b.t.Helper()
	b.store(e, about(id, name, object, intent))
	for _, woken := range b.work(e) {
		b.run(woken.PurchaseID)
	}
	return servers.Value[string](b.t, b.db, `SELECT outcome FROM payment_events WHERE id = $1`, id)
}

// An event proves nothing: the provider lists what somebody has refunded of a settled purchase, and it is recorded once. Where there are refunds of
// ours, their workers list what is there.
func TestRefundsByOthersAreRecordedAsTheProviderListsThem(t *testing.T) {
	t.Parallel()
	const noted, failed = "refunded-out-of-band(re_1 of 1200 JPY was made at the provider, and not by us)", " out-of-band-refund-failed(re_1 of 1200 JPY is failed at the provider: that money was not refunded)"
	for name, c := range map[string]struct {
		ours string // the state of a refund of ours
		told string // what the provider has of the refund at each event
		want string // refunds; what became of the events; counted; the timeline
	}{
		"it is made, and fails":                 {"", "pending succeeded failed failed", "re_1 failed; woken woken woken woken; 1 others; " + noted + failed},
		"it has failed at once":                 {"", "failed", "re_1 failed; woken; 0 others; "},
		"it is not at the provider":             {"", "gone gone", "none; woken woken; 0 others; "},
		"the provider is away":                  {"", "away succeeded", "re_1 succeeded; woken woken; 1 others; " + noted},
		"of a status that nobody knows":         {"", "lost", "none; woken; 0 others; "},
		"of somebody else":                      {"", "strange", "none; ignored; 0 others; "},
		"ours has failed":                       {"failed", "succeeded", "ours failed due; woken; 0 others; "},
		"ours, in a database that was restored": {"", "forgotten", "re_1 succeeded; woken; 1 others; " + noted},
		"it was paid out of band":               {"till", "succeeded", "none; uncaptured; 0 others; "},
	} {
		b := newBench(t)
		registry := prometheus.NewRegistry()
		b.runner = cards.NewRunner(b.db, b.sim, b.settings, servers.Logger(t), registry)
		e, id := b.newEvents(), b.reserve("pm_card_visa")
		intent := *b.want(id, cards.Settle, payment.Captured).IntentID
		if c.ours == "till" { // the provider has other money, or none
			b.exec(`UPDATE payments SET received = 0, resolved_as = 'paid-out-of-band', resolved_by = 'operator:ops', resolve_reason = 'in cash', resolve_reference = 'till-7' WHERE purchase_id = $1`, id)
		}
		b.settle(id)
		if c.ours == "failed" {
			b.exec(`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
				SELECT gen_random_uuid(), purchase_id, 1, campaign_id, 'buyer', 'card', amount, currency, 'cancelled', 'failed' FROM payments WHERE purchase_id = $1`, id)
		}
		var outcomes []string
		for n, status := range strings.Fields(c.told) {
			of := intent
			b.sim.Mend()
			switch b.sim.Refunds = nil; status {
			case "gone":
			case "away":
				b.sim.Fail(provider.Failed(payprovider.KindUnavailable, ""))
			case "strange":
				of = "pi_strange"
			case "forgotten":
				b.sim.AddRefund(intent, 1200, "", map[string]string{"refund_id": uuid.NewString()})
			default:
				b.sim.AddRefund(intent, 1200, payprovider.RefundStatus(status), nil)
			}
			outcomes = append(outcomes, b.heard(e, fmt.Sprint("evt_", n), "refund.updated", "re_1", of))
		}
		_, timeline, _ := strings.Cut(stepsOf(t, b.db, id), "captured ")
		got := servers.Value[string](t, b.db, `SELECT coalesce(string_agg(CASE WHEN reason = 'out-of-band' THEN provider_id ELSE 'ours' END || ' ' || state || CASE WHEN due_at <= clock_timestamp() THEN ' due' ELSE '' END, ', ' ORDER BY reason, provider_id), 'none') FROM refunds`) + "; " +
			strings.Join(outcomes, " ") + fmt.Sprintf("; %g others; ", servers.Counted(t, registry, "triprize_payment_out_of_band_refunds_total", "")) + strings.TrimSpace(timeline)
		if got = strings.ReplaceAll(got, "_"+intent, ""); got != c.want {
			t.Errorf("%s: %s\n want %s", name, got, c.want)
		}
	}
}

// A refund by hand ends, and its purchase is cancelled before a worker has listed it: the refund of ours, which lists nothing
// before it is made, is woken.
func TestARefundByHandThatEndsWhileOursBeginsIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, id := b.newEvents(), b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Settle, payment.Captured).IntentID
	b.settle(id)
	b.sim.AddRefund(intent, 500, payprovider.RefundPending, nil)
	b.heard(e, "evt_1", "refund.created", "re_1", intent)
	for n, wanted := range []int{0, 1} { // what is recorded already wakes nobody
		b.store(e, about(fmt.Sprint("evt_also_", n), "refund.updated", "re_1", intent))
		woken := b.work(e)
		b.exec(`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
			SELECT gen_random_uuid(), purchase_id, 1, campaign_id, 'buyer', 'card', 700, currency, 'cancelled', 'open' FROM payments WHERE purchase_id = $1`, id)
		if n == 1 {
			b.sim.Refunds[0].Status = payprovider.RefundSucceeded
		}
		for _, payment := range woken {
			b.run(payment.PurchaseID)
		}
		if due := servers.Value[int](t, b.db, `SELECT count(*) FROM refunds WHERE number IS NOT NULL AND wakes > 0 AND due_at <= clock_timestamp()`); due != wanted {
			t.Errorf("%d of ours are woken", due)
		}
		b.exec(`DELETE FROM refunds WHERE number IS NOT NULL AND purchase_id = $1`, id)
	}
}

// Somebody refunds at the provider what a worker has captured and not stored yet: the event is worked off with the money.
func TestARefundByHandBeforeTheCaptureIsInTheBooksIsNotedWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, unpaid := b.newEvents(), b.reserve("pm_action")
	itsOwn := *b.want(unpaid, cards.Waits, payment.Action).IntentID
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Settle, payment.Captured).IntentID
	b.exec(`UPDATE payments SET phase = 'capturing', received = 0 WHERE purchase_id = $1`, id)
	b.sim.AddRefund(intent, 1200, "", nil)
	if was, released := b.heard(e, "evt_1", "refund.created", "re_hand", intent), b.heard(e, "evt_2", "refund.created", "re_released", itsOwn); was != "uncaptured" || released != "uncaptured" {
		t.Errorf("before the capture they are %s and %s", was, released)
	}
	b.exec(`UPDATE payments SET phase = 'captured', received = amount WHERE purchase_id = $1`, id)
	var q pgx.Batch
	payment.QueueSettle(&q, []payment.Settlement{{PurchaseID: id, Version: b.get(id).Version, From: payment.Captured, To: payment.Settled}})
	servers.NoError(t, b.db.SendBatch(t.Context(), &q).Close())
	for _, woken := range b.work(e) {
		b.run(woken.PurchaseID)
	}
	if got := servers.Value[string](t, b.db, `SELECT string_agg(outcome, ' ' ORDER BY id) FROM payment_events`); got != "woken uncaptured" {
		t.Errorf("with the capture they are %s", got)
	}
	if steps := stepsOf(t, b.db, id); !strings.Contains(steps, "refunded-out-of-band(re_1_"+intent+" of 1200 JPY") {
		t.Errorf("the timeline says %s", steps)
	}
}

// A key that is refused for a moment delays what an event has reported for a moment only. One that lacks a permission is not asked with all day.
func TestAReviewThatFailsIsRepeatedAfterAPauseThatGrows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.want(id, cards.Settle, payment.Captured)
	b.settle(id)
	for _, kind := range []payprovider.ErrorKind{payprovider.KindForbidden, payprovider.KindRefused, payprovider.KindMismatch, payprovider.KindUnavailable} {
		most := 17.1 * 60.0
		if kind == payprovider.KindUnavailable {
			most = 5 * 60
		}
		for faults, seconds := range map[int]float64{0: 1, 3: 8, 30: most} {
			b.exec(`UPDATE payments SET faults = $2, due_at = clock_timestamp() WHERE purchase_id = $1`, id, faults)
			b.sim.Fail(provider.Failed(kind, ""))
			b.run(id)
			b.sim.Mend()
			pause := servers.Value[float64](t, b.db, `SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM payments WHERE faults = $1`, faults+1)
			if pause > seconds*1.25 || faults > 20 && pause < seconds/2 { // some of it may be over
				t.Errorf("%s, after %d faults: %.1f s", kind, faults, pause)
			}
		}
	}
}

// hears makes an endpoint of the client of the bench for events of disputes. compare checks that it has got
// those that the timelines of the purchases say.
func hears(t *testing.T, b *bench) (compare func()) {
	t.Helper()
	b.exec(`INSERT INTO webhook_endpoints (id, client, url, events) VALUES (gen_random_uuid(), 'shop', 'https://shop.example', '{dispute.*}')`)
	return func() {
		t.Helper()
		const timeline = `SELECT coalesce(string_agg(CASE event WHEN 'disputed' THEN 'dispute.created ' ELSE 'dispute.closed ' END || purchase_id, ', ' ORDER BY purchase_id, event = 'disputed'), '')
			FROM payment_steps WHERE event IN ('disputed', 'dispute-closed')`
		const events = `SELECT coalesce(string_agg(type || ' ' || subject, ', ' ORDER BY subject, type), '') FROM webhook_events`
		if want, got := servers.Value[string](t, b.db, timeline), servers.Value[string](t, b.db, events); want == "" || got != want {
			t.Errorf("told: %s\nwant: %s", got, want)
		}
	}
}

// What the provider has of a dispute is recorded, whatever an event says. Only what is lost is money that is gone, and only in the currency of the
// purchase. Where nobody says who has the money, operators are asked.
func TestADisputeIsRecordedAsTheProviderHasIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	compare := hears(t, b)
	id := b.reserve("pm_card_visa")
	b.want(id, cards.Settle, payment.Captured)
	b.settle(id)
	e, intent, n := b.newEvents(), deref(b.get(id).IntentID), 0
	is := func(disputes ...payprovider.Dispute) {
		t.Helper()
		n++
		b.sim.Disputes = disputes
		if outcome := b.heard(e, fmt.Sprint("evt_", n), "charge.dispute.updated", "du_1", intent); outcome != "woken" {
			t.Errorf("event %d is %s", n, outcome)
		}
	}
	want := func(what, dispute string, holds bool, lost money.Amount) {
		t.Helper()
		p := b.get(id)
		if p.Dispute == nil {
			p.Dispute = &payprovider.Dispute{}
		}
		if p.Dispute.ID != dispute || dispute != "" && p.Dispute.HoldsMoney() != holds || p.Disputed != lost || p.DueAt != nil || p.Phase != payment.Settled {
			t.Errorf("%s: %+v, %d are lost; due at %v", what, p.Dispute, p.Disputed, p.DueAt)
		}
	}
	a := func(id, status string, change func(*payprovider.Dispute)) payprovider.Dispute {
		d := payprovider.Dispute{ID: id, Status: status, Reason: "fraudulent", Disputed: payprovider.Disputed{Amount: 70, Currency: "JPY"}}
		if change != nil {
			change(&d)
		}
		return d
	}
	refundable, isLost := func(d *payprovider.Dispute) { d.Refundable = true }, func(d *payprovider.Dispute) { d.Lost = true }
	is()
	want("it is not at the provider", "", false, 0)
	is(a("du_1", "warning_closed", refundable))
	want("an inquiry that is over", "du_1", false, 0)
	is(a("du_1", "needs_response", nil))
	want("which the bank escalates", "du_1", true, 0)
	is(a("du_1", "lost", isLost))
	is(a("du_1", "lost", isLost))
	want("lost", "du_1", true, 70)
	is(a("du_1", "lost", isLost), a("du_2", "prevented", isLost), a("du_3", "lost", func(d *payprovider.Dispute) { d.Lost, d.Currency = true, "XXX" }), a("du_4", "won", refundable))
	want("others, too", "du_3", true, 140)
	is(a("du_1", "won", refundable), a("du_5", "frozen", func(d *payprovider.Dispute) { d.Unclear = true }))
	want("the first is won after all", "du_5", true, 70)
	found, err := reconciliation.List(t.Context(), b.db, reconciliation.Open, uuid.Nil, 10)
	if err != nil || len(found) != 1 || found[0].ObjectID != "du_5" || *found[0].PurchaseID != id || !strings.Contains(found[0].Detail, "frozen") {
		t.Errorf("operators are asked about %+v, %v", found, err)
	}
	const both = "disputed dispute-closed "
	if got := strings.Join(b.steps(id), " "); !strings.HasSuffix(got, both+both+strings.Repeat(both, 3)+"dispute-closed disputed") {
		t.Errorf("steps %s", got)
	}
	compare()
	// What a worker has read is old when another has gone on.
	b.sim.Hook(provider.Hook{Call: "list", Once: true, After: true, Do: func(string) error {
		b.exec(`UPDATE payments SET version = version + 1 WHERE purchase_id = $1`, id)
		return nil
	}})
	is(a("du_6", "lost", isLost))
	if n := servers.Value[int](t, b.db, `SELECT count(*) FROM disputes WHERE id = 'du_6'`); n != 0 {
		t.Error("a worker that is fenced has stored what it read")
	}
}
