package cards_test

import (
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
		"an operator has said that it is paid":  {"paid", "refund.created re_hand succeeded", "re_hand succeeded; recorded; 1 others, 0 beside ours; " + noted},
	} {
		b := newBench(t)
		registry := prometheus.NewRegistry()
		e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry)
		id, ours := b.reserve("pm_card_visa"), uuid.New()
		intent := *b.want(id, cards.Finalize, payment.Captured).IntentID
		if c.ours == "paid" { // the provider's answer was lost
			b.exec(`UPDATE payments SET intent_status = 'requires_capture', resolved_as = 'paid', resolved_by = 'operator:ops', resolve_reason = 'says the dashboard' WHERE purchase_id = $1`, id)
		}
		b.finalize(id)
		if c.ours != "" && c.ours != "paid" {
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
	registry := prometheus.NewRegistry()
	e := cards.NewEvents(b.db, stripe.NewReader(false), servers.Logger(t), registry)
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
