package cards_test

import (
	"fmt"
	"slices"
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
	return servers.Counted(t, registry, "triprize_payment_out_of_band_refunds_total", label)
}

// Events come in any order, and twice: what somebody refunds of a settled purchase at the provider is recorded once, and a late event takes nothing
// back. Ours is not out of band, unless nobody here knows it; and of one that was resolved by hand an event is no proof.
func TestRefundsByOthersAreRecordedAsTheirEventsSay(t *testing.T) {
	t.Parallel()
	const noted, failed = "refunded-out-of-band(re_hand of 1200 JPY was made at the provider, and not by us)", " out-of-band-refund-failed(re_hand of 1200 JPY is failed at the provider: that money was not refunded)"
	for name, c := range map[string]struct {
		ours string // the state of a refund of ours, which has no id of the provider's yet
		told string // batches of events: type, refund, status, and whose id is in the metadata
		want string // refunds by others; what became of the events; counted; the timeline
	}{
		"it is made, and fails":                 {"", "refund.created re_hand pending, refund.updated re_hand succeeded, charge.refunded ch_1 succeeded; refund.updated re_hand failed, charge.refund.updated re_hand succeeded; refund.failed re_hand failed", "re_hand failed; recorded recorded ignored recorded recorded recorded; 1 others, 0 beside ours; " + noted + failed},
		"it has failed, in the same batch":      {"", "refund.failed re_hand failed, refund.created re_hand succeeded", "re_hand failed; recorded recorded; 1 others, 0 beside ours; " + noted + failed},
		"it has failed at once":                 {"", "refund.failed re_hand failed; refund.created re_hand pending", "re_hand failed; recorded recorded; 0 others, 0 beside ours; "},
		"ours has failed":                       {"failed", "refund.created re_hand succeeded", "ours failed due, re_hand succeeded; woken; 0 others, 1 beside ours; " + noted},
		"of a status that nobody knows":         {"", "refund.created re_hand lost", "none; ignored; 0 others, 0 beside ours; "},
		"of somebody else":                      {"", "refund.created re_strange succeeded stranger, refund.created re_strange succeeded", "none; ignored ignored; 0 others, 0 beside ours; "},
		"ours":                                  {"open", "refund.created re_1 pending ours", "ours open due; woken; 0 others, 0 beside ours; "},
		"ours, in a database that was restored": {"", "refund.created re_hand succeeded forgotten", "re_hand succeeded; recorded; 1 others, 0 beside ours; " + noted},
		"ours, which was resolved by hand":      {"resolved", "refund.created re_1 pending ours, refund.created re_2 succeeded", "ours resolved due; woken woken; 0 others, 0 beside ours; "},
		"pending":                               {"", "refund.updated re_hand pending; refund.updated re_hand requires_action", "re_hand requires_action; recorded recorded; 1 others, 0 beside ours; " + noted},
		"succeeded, and then pending":           {"", "refund.updated re_hand succeeded; refund.updated re_hand pending", "re_hand succeeded; recorded recorded; 1 others, 0 beside ours; " + noted},
		"succeeded, and then failed":            {"", "refund.updated re_hand succeeded; refund.updated re_hand failed", "re_hand failed; recorded recorded; 1 others, 0 beside ours; " + noted + failed},
		"failed, and then succeeded":            {"", "refund.updated re_hand failed; refund.updated re_hand succeeded", "re_hand failed; recorded recorded; 0 others, 0 beside ours; "},
		"canceled, and then pending":            {"", "refund.updated re_hand canceled; refund.updated re_hand pending", "re_hand canceled; recorded recorded; 0 others, 0 beside ours; "},
		"to be acted on, and then succeeded":    {"", "refund.updated re_hand requires_action; refund.updated re_hand succeeded", "re_hand succeeded; recorded recorded; 1 others, 0 beside ours; " + noted},
		"it was paid out of band":               {"till", "refund.created re_hand succeeded", "none; uncaptured; 0 others, 0 beside ours; "},
	} {
		b := newBench(t)
		e, registry := b.countedEvents()
		id, ours := b.reserve("pm_card_visa"), uuid.New()
		intent := *b.want(id, cards.Finalize, payment.Captured).IntentID
		if c.ours == "till" { // the provider has other money, or none
			b.exec(`UPDATE payments SET received = 0, resolved_as = 'paid-out-of-band', resolved_by = 'operator:ops', resolve_reason = 'in cash', resolve_reference = 'till-7' WHERE purchase_id = $1`, id)
		}
		b.finalize(id)
		if c.ours != "" && c.ours != "till" {
			b.exec(`INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, resolved_by, resolve_reason, finished_at, provider_id)
				SELECT $2, purchase_id, 1, campaign_id, 'buyer', 'card', amount, currency, 'cancelled', $3::text, CASE WHEN $3 = 'resolved' THEN 'operator:ops' END,
				CASE WHEN $3 = 'resolved' THEN 'by bank' END, CASE WHEN $3 = 'resolved' THEN clock_timestamp() END, CASE WHEN $3 = 'resolved' THEN 're_1' END FROM payments WHERE purchase_id = $1`, id, ours, c.ours)
			b.exec(`UPDATE refunds SET due_at = NULL`)
		}
		n := 0
		for batch := range strings.SplitSeq(c.told, "; ") {
			for one := range strings.SplitSeq(batch, ", ") {
				words, of := append(strings.Fields(one), ""), intent
				if strings.Contains(words[1], "strange") {
					of = "pi_strange"
				}
				whose := map[string]string{"ours": ours.String(), "stranger": uuid.NewString(), "forgotten": uuid.NewString()}[words[3]]
				b.store(e, refundEvent(fmt.Sprintf("evt_%02d", n), words[0], words[1], of, words[2], whose))
				n++
			}
			b.work(e)
		}
		got := servers.Value[string](t, b.db, `SELECT coalesce(string_agg(CASE WHEN reason = 'out-of-band' THEN provider_id ELSE 'ours' END || ' ' || state || CASE WHEN due_at <= clock_timestamp() THEN ' due' ELSE '' END, ', ' ORDER BY reason, provider_id), 'none') FROM refunds`) + "; " +
			servers.Value[string](t, b.db, `SELECT string_agg(outcome, ' ' ORDER BY id) FROM payment_events`) +
			fmt.Sprintf("; %g others, %g beside ours; ", countOutOfBand(t, registry, "none"), countOutOfBand(t, registry, "known"))
		_, told, _ := strings.Cut(stepsOf(t, b.db, id), "captured ")
		got += strings.TrimSpace(told)
		if got != c.want {
			t.Errorf("%s: %s\n want %s", name, got, c.want)
		}
	}
}

// Somebody refunds at the provider what a worker has captured and not stored yet: the event is worked off with the money.
func TestARefundByHandBeforeTheCaptureIsInTheBooksIsNotedWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, registry := b.countedEvents()
	outcome := func(id string) string {
		t.Helper()
		return servers.Value[string](t, b.db, `SELECT coalesce(outcome, 'open') FROM payment_events WHERE id = $1`, id)
	}
	unpaid := b.reserve("pm_action")
	itsOwn := *b.want(unpaid, cards.Waits, payment.Action).IntentID
	id := b.reserve("pm_card_visa")
	intent := *b.want(id, cards.Finalize, payment.Captured).IntentID
	b.exec(`UPDATE payments SET phase = 'capturing', received = 0 WHERE purchase_id = $1`, id)
	b.store(e, refundEvent("evt_1", "refund.created", "re_hand", intent, "succeeded", ""), refundEvent("evt_2", "refund.created", "re_released", itsOwn, "succeeded", ""))
	b.work(e)
	if outcome("evt_1") != "uncaptured" || outcome("evt_2") != "uncaptured" || countOutOfBand(t, registry, "none") != 0 {
		t.Errorf("before the capture they are %s and %s", outcome("evt_1"), outcome("evt_2"))
	}
	b.exec(`UPDATE payments SET phase = 'captured', received = amount WHERE purchase_id = $1`, id)
	var q pgx.Batch
	payment.QueueFinalize(&q, []payment.Finalization{{PurchaseID: id, Version: b.get(id).Version, From: payment.Captured, To: payment.Settled}})
	servers.NoError(t, b.db.SendBatch(t.Context(), &q).Close())
	b.work(e)
	if outcome("evt_1") != "recorded" || outcome("evt_2") != "uncaptured" || countOutOfBand(t, registry, "none") != 1 {
		t.Errorf("with the capture they are %s and %s, counted are %g", outcome("evt_1"), outcome("evt_2"), countOutOfBand(t, registry, "none"))
	}
	if steps := stepsOf(t, b.db, id); !strings.Contains(steps, "refunded-out-of-band(re_hand of 1200 JPY") {
		t.Errorf("the timeline says %s", steps)
	}
}

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
