package stripe_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
)

// list is the JSON of a page.
func list(more bool, items ...string) answer {
	return answer{200, fmt.Sprintf(`{"object":"list","has_more":%t,"data":[%s]}`, more, strings.Join(items, ",")), nil}
}

func named(id string) string { return intent("id", `"`+id+`"`) }

var (
	from = time.Unix(1700000000, 0)
	to   = time.Unix(1700003600, 1)
)

func TestAListIsReadPageByPage(t *testing.T) {
	t.Parallel()
	server := serve(t, list(true, named("pi_5"), named("pi_4")), answer{status: 503, body: "busy"}, list(true, named("pi_3"), named("pi_2")), list(false, named("pi_1")))
	client := connect(t, settings(server.url))
	var got []string
	err := client.ListIntents(t.Context(), from, to, func(i payprovider.Intent) error { got = append(got, i.ID); return nil })
	if err != nil || fmt.Sprint(got) != "[pi_5 pi_4 pi_3 pi_2 pi_1]" {
		t.Errorf("got %v, %v", got, err)
	}
	after := []string{"", "pi_4", "pi_4", "pi_2"} // the second page was asked for twice
	for i, r := range server.requests() {
		if r.form.Get("created[gte]") != "1700000000" || r.form.Get("created[lt]") != "1700003601" || r.form.Get("limit") != "100" ||
			r.form.Get("starting_after") != after[i] || r.path != "/v1/payment_intents" {
			t.Errorf("asked %s %v", r.path, r.form)
		}
	}
	if n := client.counted(t, "triprize_stripe_calls_total", "list"); n != 3 {
		t.Errorf("%g pages were counted", n)
	}
}

func TestAListEndsWhereItsReaderEnds(t *testing.T) {
	t.Parallel()
	server := serve(t, list(true, named("pi_5"), named("pi_4")))
	client := connect(t, settings(server.url))
	enough := errors.New("enough")
	if err := client.ListIntents(t.Context(), from, to, func(payprovider.Intent) error { return enough }); !errors.Is(err, enough) || len(server.requests()) != 1 {
		t.Errorf("got %v after %d requests", err, len(server.requests()))
	}
}

func TestAListThatWouldNeverEndIsRefused(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]answer{"empty pages": list(true), "the same page": list(true, named("pi_1"))} {
		server := serve(t, page)
		client := connect(t, settings(server.url))
		err := client.ListIntents(t.Context(), from, to, func(payprovider.Intent) error { return nil })
		if e := fault(t, err); e.Kind != payprovider.KindUnavailable || len(server.requests()) > 4 {
			t.Errorf("%s: got %v after %d requests", name, err, len(server.requests()))
		}
	}
}

func TestAListOfAnotherModeIsAMismatch(t *testing.T) {
	t.Parallel()
	server := serve(t, list(false, named("pi_1"), intent("livemode", "true")))
	client := connect(t, settings(server.url))
	err := client.ListIntents(t.Context(), from, to, func(payprovider.Intent) error { t.Error("yielded"); return nil })
	if e := fault(t, err); e.Kind != payprovider.KindMismatch {
		t.Errorf("got %v", err)
	}
}

func TestTheRefundsOfAnIntentAreOfThatIntent(t *testing.T) {
	t.Parallel()
	server := serve(t, list(true, refund("id", `"re_2"`)), list(false, refund()), list(false, refund("payment_intent", `"pi_2"`)), list(false, refund()))
	client := connect(t, settings(server.url))
	all, err := client.RefundsOf(t.Context(), "pi_1")
	if err != nil || len(all) != 2 || all[0].ID != "re_2" || all[1].ID != "re_1" || server.requests()[0].form.Get("payment_intent") != "pi_1" {
		t.Errorf("got %+v, %v", all, err)
	}
	if all, err := client.RefundsOf(t.Context(), "pi_1"); all != nil || fault(t, err).Kind != payprovider.KindMismatch {
		t.Errorf("got %+v, %v", all, err)
	}
	var ids []string
	err = client.ListRefunds(t.Context(), from, to, func(r payprovider.Refund) error { ids = append(ids, r.ID); return nil })
	if err != nil || fmt.Sprint(ids) != "[re_1]" || server.requests()[3].form.Get("created[gte]") != "1700000000" {
		t.Errorf("got %v, %v", ids, err)
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
