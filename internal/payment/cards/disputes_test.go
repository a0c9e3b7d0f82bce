package cards_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
)

func disputeEvent(id, name, dispute, intent, status string) payprovider.Event {
	return payprovider.Event{ID: id, Type: name, APIVersion: stripe.APIVersion, CreatedAt: time.Now(), ObjectID: dispute, IntentID: intent,
		Status: status, Reason: "fraudulent", Payload: []byte(`{}`)}
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

func TestADisputeIsRecordedAndNeverGoesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	compare := hears(t, b)
	id := b.reserve("pm_card_visa")
	b.want(id, cards.Finalize, payment.Captured)
	e := b.newEvents()
	intent, before := deref(b.get(id).IntentID), b.get(id)
	b.store(e, disputeEvent("evt_2", "charge.dispute.closed", "dp_1", intent, "lost"))
	b.work(e)
	b.store(e, disputeEvent("evt_1", "charge.dispute.created", "dp_1", intent, "needs_response"),
		disputeEvent("evt_0", "charge.dispute.created", "dp_of_a_stranger", "pi_of_a_stranger", "needs_response"))
	b.work(e)
	if p := b.get(id); p.Dispute == nil || p.Dispute.Status != "lost" || p.Phase != before.Phase || p.Version != before.Version {
		t.Errorf("%+v; the payment is %s, version %d", p.Dispute, p.Phase, p.Version)
	}
	for i, status := range []string{"warning_closed", "needs_response", "lost", "won", "won"} {
		again := disputeEvent(fmt.Sprintf("evt_5%d", i), "charge.dispute.updated", "dp_3", intent, status)
		again.CreatedAt = again.CreatedAt.Add(time.Duration(i) * time.Second)
		b.store(e, again)
		b.work(e)
	}
	want := []string{"disputed", "dispute-closed", "disputed", "dispute-closed", "disputed", "dispute-closed", "dispute-closed"}
	if got := b.steps(id); !slices.Equal(got[len(got)-len(want):], want) {
		t.Errorf("steps %v", got)
	}
	compare()
}

// told is a dispute as an event tells it, and the event's second.
type told struct {
	dispute, status string
	refundable      bool
	second          int64
}

// The life of a dispute is told in every order, each event by a batch of its own or all by one:
// in the end stands what was true last.
func TestDisputesThatAreToldInAnyOrderEndTheSame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	compare := hears(t, b)
	id := b.reserve("pm_card_visa")
	b.want(id, cards.Finalize, payment.Captured)
	e, intent, n := b.newEvents(), deref(b.get(id).IntentID), 0
	for name, c := range map[string]struct {
		events []told
		want   payment.Dispute
	}{
		"an inquiry that the bank escalates": {[]told{{"du_1", "warning_needs_response", true, 1}, {"du_1", "warning_under_review", true, 2}, {"du_1", "needs_response", false, 3}},
			payment.Dispute{ID: "du_1", Status: "needs_response"}},
		"one that was closed, too, within a second": {[]told{{"du_1", "warning_needs_response", true, 1}, {"du_1", "warning_closed", true, 1}, {"du_1", "needs_response", false, 1}},
			payment.Dispute{ID: "du_1", Status: "needs_response"}},
		"a dispute that is won": {[]told{{"du_1", "needs_response", false, 1}, {"du_1", "under_review", false, 2}, {"du_1", "won", true, 3}},
			payment.Dispute{ID: "du_1", Status: "won", Refundable: true}},
		"one that the buyer takes back when it is lost": {[]told{{"du_1", "under_review", false, 1}, {"du_1", "lost", false, 2}, {"du_1", "won", true, 3}},
			payment.Dispute{ID: "du_1", Status: "won", Refundable: true}},
		"a status of tomorrow": {[]told{{"du_1", "needs_response", false, 1}, {"du_1", "frozen", false, 2}, {"du_1", "lost", false, 3}},
			payment.Dispute{ID: "du_1", Status: "lost"}},
		"an inquiry whose charge can no more be refunded": {[]told{{"du_1", "warning_needs_response", true, 1}, {"du_1", "warning_needs_response", false, 2}, {"du_1", "warning_needs_response", false, 3}},
			payment.Dispute{ID: "du_1", Status: "warning_needs_response"}},
		"the same within a second": {[]told{{"du_1", "warning_needs_response", true, 1}, {"du_1", "warning_needs_response", false, 1}},
			payment.Dispute{ID: "du_1", Status: "warning_needs_response"}},
		"an inquiry beside a dispute": {[]told{{"du_1", "needs_response", false, 1}, {"du_2", "warning_needs_response", true, 2}, {"du_2", "warning_closed", true, 3}},
			payment.Dispute{ID: "du_1", Status: "needs_response"}},
		"a second dispute, open when the first is won": {[]told{{"du_1", "needs_response", false, 1}, {"du_2", "needs_response", false, 2}, {"du_1", "won", true, 3}},
			payment.Dispute{ID: "du_2", Status: "needs_response"}},
		"an open one beside a lost one": {[]told{{"du_1", "needs_response", false, 1}, {"du_2", "lost", false, 2}},
			payment.Dispute{ID: "du_1", Status: "needs_response"}},
		"a second one that is won, when the first is lost": {[]told{{"du_1", "lost", false, 1}, {"du_2", "needs_response", false, 2}, {"du_2", "won", true, 3}},
			payment.Dispute{ID: "du_1", Status: "lost"}},
	} {
		c.want.Reason = "fraudulent"
		for order := range permutations(len(c.events)) {
			for _, apart := range []bool{true, false} {
				n++
				var events []payprovider.Event
				for place, i := range order {
					one := c.events[i]
					event := disputeEvent(fmt.Sprintf("evt_%d_%d", n, place), "charge.dispute.updated", fmt.Sprintf("%s_%d", one.dispute, n), intent, one.status)
					event.Refundable, event.CreatedAt = one.refundable, time.Unix(1700000000+one.second, 0)
					events = append(events, event)
					if apart {
						b.store(e, event)
						b.work(e)
					}
				}
				if !apart {
					b.store(e, events...)
					b.work(e)
				}
				want := c.want
				want.ID = fmt.Sprintf("%s_%d", want.ID, n)
				if p := b.get(id); p.Dispute == nil || *p.Dispute != want || p.DisputedAt == nil || p.Dispute.HoldsMoney() == want.Refundable {
					t.Errorf("%s, in the order %v, apart: %t: %+v", name, order, apart, p.Dispute)
				}
				b.exec(`DELETE FROM disputes`)
				b.exec(`UPDATE payments SET dispute = NULL, disputed_at = NULL`)
			}
		}
	}
	compare()
}

// What is lost is money that is gone: only it counts, and only in the currency of the purchase.
func TestDisputesThatAreLostCountWithTheirAmount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.want(id, cards.Finalize, payment.Captured)
	e, intent, n := b.newEvents(), deref(b.get(id).IntentID), 0
	currency := b.get(id).Currency
	tell := func(dispute, status string, second int64, money payprovider.Disputed) {
		n++
		event := disputeEvent(fmt.Sprint("evt_", n), "charge.dispute.updated", dispute, intent, status)
		event.CreatedAt, event.Disputed, event.Refundable = time.Unix(1700000000+second, 0), &money, status == "won"
		b.store(e, event)
		b.work(e)
	}
	want := func(what string, lost money.Amount, shown payprovider.Disputed) {
		t.Helper()
		if p := b.get(id); p.Disputed != lost || p.Dispute.Disputed != shown {
			t.Errorf("%s: %d are lost, and it is %+v", what, p.Disputed, p.Dispute)
		}
	}
	some := payprovider.Disputed{Amount: 70, Currency: currency}
	withFee := payprovider.Disputed{Amount: 70, Currency: currency, Fee: 1500, FeeCurrency: "EUR"}
	tell("du_1", "needs_response", 1, some)
	want("open", 0, some)
	tell("du_1", "needs_response", 1, withFee) // within the second, with the movement of the balance
	want("with its fee", 0, withFee)
	tell("du_1", "needs_response", 1, some)
	want("the first again", 0, withFee)
	tell("du_1", "lost", 2, withFee)
	want("lost", 70, withFee)
	tell("du_2", "lost", 3, payprovider.Disputed{Amount: 20, Currency: currency})
	want("two", 90, payprovider.Disputed{Amount: 20, Currency: currency})
	tell("du_3", "lost", 1, payprovider.Disputed{Amount: 900, Currency: "XXX"})
	tell("du_4", "won", 1, payprovider.Disputed{Amount: 10, Currency: currency})
	want("of another currency, and one that is won", 90, payprovider.Disputed{Amount: 20, Currency: currency})
	tell("du_1", "won", 4, withFee)
	want("the first is won after all", 20, payprovider.Disputed{Amount: 20, Currency: currency})
}

// permutations yields the orders of n things.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		var put func(order []int) bool
		put = func(order []int) bool {
			if len(order) == n {
				return yield(slices.Clone(order))
			}
			for i := range n {
				if !slices.Contains(order, i) && !put(append(order, i)) {
					return false
				}
			}
			return true
		}
		put(nil)
	}
}
