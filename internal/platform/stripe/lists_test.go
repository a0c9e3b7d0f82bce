package stripe_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
)

// list is the JSON of a page.
func list(more bool, items ...string) answer {
	return answer{200, fmt.Sprintf(`{"object":"list","has_more":%t,"data":[%s]}`, more, strings.Join(items, ",")), nil}
}

func named(id string) string { return moved("id", `"`+id+`"`) }

var (
	from = time.Unix(1700000000, 0)
	to   = time.Unix(1700003600, 1)
)

func TestAListIsReadPageByPage(t *testing.T) {
	t.Parallel()
	server := serve(t, list(true, named("txn_5"), named("txn_4")), answer{status: 503, body: "busy"}, list(true, named("txn_3"), named("txn_2")), list(false, named("txn_1")))
	client := connect(t, settings(server.url))
	var got []string
	err := client.ListBalanceTransactions(t.Context(), from, to, func(i payprovider.BalanceTransaction) error { got = append(got, i.ID); return nil })
	if err != nil || fmt.Sprint(got) != "[txn_5 txn_4 txn_3 txn_2 txn_1]" {
		t.Errorf("got %v, %v", got, err)
	}
	after := []string{"", "txn_4", "txn_4", "txn_2"} // the second page was asked for twice
	for i, r := range server.requests() {
		if r.form.Get("created[gte]") != "1700000000" || r.form.Get("created[lt]") != "1700003601" || r.form.Get("limit") != "100" ||
			r.form.Get("starting_after") != after[i] || r.path != "/v1/balance_transactions" {
			t.Errorf("asked %s %v", r.path, r.form)
		}
	}
	if n := client.counted(t, "triprize_stripe_calls_total", "list"); n != 3 {
		t.Errorf("%g pages were counted", n)
	}
	if err := client.ListBalanceTransactions(t.Context(), from, to, func(payprovider.BalanceTransaction) error { return errEnough }); !errors.Is(err, errEnough) {
		t.Errorf("the reader ends it: %v", err)
	}
}

func TestAListThatWouldNeverEndIsRefused(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]answer{"empty pages": list(true), "the same page": list(true, named("txn_1"))} {
		server := serve(t, page)
		client := connect(t, settings(server.url))
		err := client.ListBalanceTransactions(t.Context(), from, to, func(payprovider.BalanceTransaction) error { return nil })
		if e := fault(t, err); e.Kind != payprovider.KindUnavailable || len(server.requests()) > 4 {
			t.Errorf("%s: got %v after %d requests", name, err, len(server.requests()))
		}
	}
}

func TestTheRefundsOfAnIntentAreOfThatIntent(t *testing.T) {
	t.Parallel()
	server := serve(t, list(true, refund("id", `"re_2"`)), list(false, refund()), list(false, refund("payment_intent", `"pi_2"`)))
	client := connect(t, settings(server.url))
	all, err := client.RefundsOf(t.Context(), "pi_1")
	if err != nil || len(all) != 2 || all[0].ID != "re_2" || all[1].ID != "re_1" || server.requests()[0].form.Get("payment_intent") != "pi_1" {
		t.Errorf("got %+v, %v", all, err)
	}
	if all, err := client.RefundsOf(t.Context(), "pi_1"); all != nil || fault(t, err).Kind != payprovider.KindMismatch {
		t.Errorf("got %+v, %v", all, err)
	}
}

// Each end of a dispute that Stripe knows is what became of the money; what is not known is never taken as won.
func TestADisputeSaysWhoHasTheMoney(t *testing.T) {
	t.Parallel()
	const taken, back = `{"amount":-70,"fee":1500,"currency":"eur"}`, `{"amount":70,"fee":0,"currency":"eur"}`
	for name, c := range map[string]struct {
		status     string
		refundable bool
		movements  string
		want       string
	}{
		"an inquiry":                   {"warning_needs_response", true, "", "refundable"},
		"of a charge that is refunded": {"warning_under_review", false, "", "held"},
		"an inquiry that is over":      {"warning_closed", false, "", "refundable"},
		"a dispute":                    {"needs_response", false, taken, "held fee"},
		"under review":                 {"under_review", false, taken, "held fee"},
		"won":                          {"won", false, taken + "," + back, "refundable fee"},
		"lost":                         {"lost", false, taken, "held lost fee"},
		"prevented by a refund":        {"prevented", true, taken, "held lost fee"},
		"prevented by a block":         {"prevented", true, "", "refundable"},
		"prevented, and nobody knows":  {"prevented", false, "", "held unclear"},
		"a status of tomorrow":         {"frozen", true, "", "held unclear"},
	} {
		server := serve(t, list(false, fmt.Sprintf(`{"id":"du_1","object":"dispute","payment_intent":"pi_1","amount":70,"currency":"jpy","reason":"fraudulent","status":%q,"is_charge_refundable":%t,"balance_transactions":[%s]}`,
			c.status, c.refundable, c.movements)))
		all, err := connect(t, settings(server.url)).DisputesOf(t.Context(), "pi_1")
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		d := all[0]
		got := map[bool]string{true: "held", false: "refundable"}[d.HoldsMoney()]
		for _, more := range []struct {
			is   bool
			word string
		}{{d.Lost, " lost"}, {d.Unclear, " unclear"}, {d.Fee == 1500 && d.FeeCurrency == "EUR", " fee"}} {
			if more.is {
				got += more.word
			}
		}
		if got != c.want || d.Amount != 70 || d.Currency != "JPY" || d.Status != c.status || d.Reason != "fraudulent" {
			t.Errorf("%s: %s, %+v", name, got, d)
		}
	}
	server := serve(t, list(false, `{"id":"du_1","object":"dispute","payment_intent":"pi_2"}`))
	if all, err := connect(t, settings(server.url)).DisputesOf(t.Context(), "pi_1"); all != nil || fault(t, err).Kind != payprovider.KindMismatch {
		t.Errorf("got %+v, %v", all, err)
	}
}

func TestEventsThatAreNotForUsDoNotKeepOthersFromBeingFound(t *testing.T) {
	t.Parallel()
	server := serve(t, list(false, event("id", `"evt_4"`, "livemode", "true"), event("id", `"evt_3"`, "account", `"acct_2"`),
		event("id", `"evt_2"`, "type", `""`), event()))
	client := connect(t, settings(server.url))
	var got []payprovider.Event
	err := client.ListEvents(t.Context(), from, to, []string{"payment_intent.*", "refund.*"}, func(e payprovider.Event) error { got = append(got, e); return nil })
	if err != nil || len(got) != 1 || got[0].ID != "evt_1" || got[0].IntentID != "pi_1" || string(got[0].Payload) != event() {
		t.Errorf("got %+v, %v", got, err)
	}
	if r := server.requests()[0]; r.form.Get("types[0]") != "payment_intent.*" || r.form.Get("types[1]") != "refund.*" || r.path != "/v1/events" {
		t.Errorf("asked %v", r.form)
	}
	if n := strings.Count(client.log.String(), "level=ERROR"); n != 3 {
		t.Errorf("logged %s", client.log.String())
	}
}

// moved is the JSON of a balance transaction of a charge over 1000 JPY.
func moved(changes ...string) string {
	return object(map[string]string{
		"id": `"txn_1"`, "object": `"balance_transaction"`, "amount": "650", "currency": `"usd"`, "fee": "30", "net": "620", "exchange_rate": "0.65",
		"created": "1700000000", "available_on": "1700400000", "type": `"charge"`, "reporting_category": `"charge"`,
		"source": `{"id":"ch_1","object":"charge","amount":2000,"amount_captured":1000,"currency":"jpy","status":"succeeded","payment_intent":"pi_1","metadata":{"installation":"i1"}}`,
	}, changes)
}

func TestABalanceTransactionTellsWhatItsSourceWasMadeOver(t *testing.T) {
	t.Parallel()
	server := serve(t, list(true, moved()), list(false,
		moved("id", `"txn_2"`, "reporting_category", `"refund"`, "source", `{"id":"re_1","object":"refund","amount":300,"currency":"jpy","status":"failed","payment_intent":"pi_1","metadata":{"refund_id":"r1"}}`),
		moved("id", `"txn_3"`, "reporting_category", `"dispute"`, "source", `{"id":"du_1","object":"dispute","amount":1000,"currency":"jpy","status":"lost","payment_intent":{"id":"pi_1","object":"payment_intent"}}`),
		moved("id", `"txn_4"`, "reporting_category", `"moon_tax"`, "exchange_rate", "null", "source", "null"),
		moved("id", `"txn_5"`, "reporting_category", `"payout"`, "source", `{"id":"po_1","object":"payout"}`)), list(false, moved("source", `"ch_1"`)))
	client := connect(t, settings(server.url))
	var got []string
	read := func(b payprovider.BalanceTransaction) error {
		rate := ""
		if b.ExchangeRate != nil {
			rate = *b.ExchangeRate
		}
		got = append(got, fmt.Sprint(b.ID, b.Category, b.Known, b.Amount, b.Currency, b.Fee, b.Net, rate, b.Source))
		return nil
	}
	if err := client.ListBalanceTransactions(t.Context(), from, to, read); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprint("txn_1", "charge", true, 650, "USD", 30, 620, "0.65", payprovider.Source{ID: "ch_1", IntentID: "pi_1", Amount: 1000, Currency: "JPY", Status: "succeeded", Metadata: map[string]string{"installation": "i1"}}),
		fmt.Sprint("txn_2", "refund", true, 650, "USD", 30, 620, "0.65", payprovider.Source{ID: "re_1", IntentID: "pi_1", Amount: 300, Currency: "JPY", Status: "failed", Metadata: map[string]string{"refund_id": "r1"}}),
		fmt.Sprint("txn_3", "dispute", true, 650, "USD", 30, 620, "0.65", payprovider.Source{ID: "du_1", IntentID: "pi_1", Amount: 1000, Currency: "JPY", Status: "lost"}),
		fmt.Sprint("txn_4", "moon_tax", false, 650, "USD", 30, 620, "", payprovider.Source{}),
		fmt.Sprint("txn_5", "payout", true, 650, "USD", 30, 620, "0.65", payprovider.Source{ID: "po_1"}),
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if r := server.requests()[0]; r.path != "/v1/balance_transactions" || r.form.Get("expand[0]") != "data.source" || r.form.Get("created[gte]") != "1700000000" {
		t.Errorf("asked %s %v", r.path, r.form)
	}
	if err := client.ListBalanceTransactions(t.Context(), from, to, read); fault(t, err).Kind != payprovider.KindUnavailable { // whose it is nobody can tell
		t.Errorf("a source that is only an id: %v", err)
	}
}
