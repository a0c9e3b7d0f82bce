package stripe_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stripe/stripe-go/v85/webhook"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/stripe"
)

// event is the JSON of an event about intent pi_1, with some fields changed.
func event(changes ...string) string {
	return object(map[string]string{
		"id": `"evt_1"`, "object": `"event"`, "type": `"payment_intent.succeeded"`, "api_version": `"` + stripe.APIVersion + `"`, "created": "1700000000",
		"livemode": "false", "data": `{"object":` + intent("status", `"succeeded"`) + `}`,
	}, changes)
}

func of(object string) string { return event("data", `{"object":`+object+`}`) }

func signed(payload, secret string, at time.Time) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(payload), Secret: secret, Timestamp: at}).Header
}

func TestAnEventSaysWhatItIsAbout(t *testing.T) {
	t.Parallel()
	client := connect(t, settings(""))
	for name, c := range map[string]struct {
		payload string
		want    payprovider.Event
	}{
		"an intent":          {event(), payprovider.Event{ObjectID: "pi_1", IntentID: "pi_1", Status: "succeeded", Metadata: map[string]string{"purchase_id": "p1", "campaign_id": "c1"}}},
		"a refund":           {of(refund()), payprovider.Event{ObjectID: "re_1", IntentID: "pi_1", Status: "pending", Metadata: map[string]string{"purchase_id": "p1"}}},
		"a dispute":          {of(`{"id":"du_1","object":"dispute","payment_intent":"pi_1","status":"needs_response","metadata":{}}`), payprovider.Event{ObjectID: "du_1", IntentID: "pi_1", Status: "needs_response", Metadata: map[string]string{}}},
		"a charge":           {of(`{"id":"ch_1","object":"charge","is_charge_refundable":true}`), payprovider.Event{ObjectID: "ch_1"}},
		"an expanded intent": {of(`{"id":"ch_1","object":"charge","payment_intent":{"id":"pi_1","object":"payment_intent"},"status":7}`), payprovider.Event{ObjectID: "ch_1", IntentID: "pi_1"}},
		"no intent":          {of(`{"id":"ch_1","object":"charge","payment_intent":null,"metadata":[]}`), payprovider.Event{ObjectID: "ch_1"}},
		"something else":     {of(`{"object":"balance"}`), payprovider.Event{}},
	} {
		got, err := client.ParseEvent([]byte(c.payload), signed(c.payload, testSecret, time.Now()))
		if err != nil || got.ID != "evt_1" || got.Type != "payment_intent.succeeded" || !got.CreatedAt.Equal(time.Unix(1700000000, 0)) ||
			string(got.Payload) != c.payload {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if w := c.want; got.ObjectID != w.ObjectID || got.IntentID != w.IntentID || got.Status != w.Status ||
			len(got.Metadata) != len(w.Metadata) || got.Metadata["purchase_id"] != w.Metadata["purchase_id"] {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestAWebhookIsBelievedByItsSignatureOnly(t *testing.T) {
	t.Parallel()
	with := settings("")
	with.WebhookSecret = testSecret + ", whsec_the_one_before_it"
	ours, closed := connect(t, with), connect(t, config.Stripe{Rate: 1, EndpointRate: 1})
	payload, now := event(), time.Now()
	good := signed(payload, testSecret, now)
	for name, c := range map[string]struct {
		client    client
		signature string
		want      error
	}{
		"signed":                          {ours, good, nil},
		"signed with the secret before":   {ours, signed(payload, "whsec_the_one_before_it", now), nil},
		"signed twice":                    {ours, good + ",v1=" + strings.Repeat("0", 64), nil},
		"signed with another secret":      {ours, signed(payload, "whsec_of_somebody_else", now), payprovider.ErrSignature},
		"signed with no secret":           {ours, signed(payload, "", now), payprovider.ErrSignature},
		"signed for another payload":      {ours, signed(payload+" ", testSecret, now), payprovider.ErrSignature},
		"signed for another time":         {ours, strings.Replace(good, "t=1", "t=2", 1), payprovider.ErrSignature},
		"signed long ago":                 {ours, signed(payload, testSecret, now.Add(-time.Hour)), payprovider.ErrTooOld},
		"not signed":                      {ours, "", payprovider.ErrSignature},
		"garbage":                         {ours, "t=soon,v1=zz", payprovider.ErrSignature},
		"another scheme":                  {ours, strings.Replace(good, "v1=", "v0=", 1), payprovider.ErrSignature},
		"no secrets here":                 {closed, good, payprovider.ErrSignature},
		"no secrets here and none needed": {closed, signed(payload, "", now), payprovider.ErrSignature},
	} {
		got, err := c.client.ParseEvent([]byte(payload), c.signature)
		if !errors.Is(err, c.want) || (err == nil) != (got.ID == "evt_1") {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// Of another release an event is read as far as it goes. What is not for us is said loudly.
func TestWhatIsSignedIsAnEventForUsOrIsRefused(t *testing.T) {
	t.Parallel()
	const ours, notForUs, none = "an event", "not for us", "no event"
	all := map[string]string{
		event("livemode", "true"): notForUs, event("account", `"acct_2"`): notForUs,
		"": none, "{": none, "null": none, "[]": none, event("object", `"v2.core.event"`): none, event("id", `""`): none, event("type", "null"): none, event("data", "null"): none,
		event("data", "{}"): none, event("data", `{"object":"pi_1"}`): none, event("created", `"now"`): none, event("type", `"`+strings.Repeat("a", stripe.MaxEventBytes)+`"`): none,
	}
	for _, version := range []string{stripe.APIVersion, "2026-12-31.dahlia", "2025-01-27.acacia", "2019-02-19", ""} {
		all[event("api_version", `"`+version+`"`, "pending_webhooks", `"many"`, "request", "7")] = ours
	}
	for payload, want := range all {
		client := connect(t, settings(""))
		got, err := client.ParseEvent([]byte(payload), signed(payload, testSecret, time.Now()))
		is := ours
		switch e, ok := errors.AsType[*payprovider.Error](err); {
		case ok && e.Kind == payprovider.KindMismatch && got.ID == "evt_1" && strings.Contains(client.log.String(), "level=ERROR"):
			is = notForUs
		case errors.Is(err, payprovider.ErrEvent):
			is = none
		case err != nil || got.IntentID != "pi_1" || !strings.Contains(payload, `"api_version":"`+got.APIVersion+`"`):
			is = "wrong"
		}
		if is != want {
			t.Errorf("%.300s: %s: %+v, %v, want %s", payload, is, got, err, want)
		}
	}
}

// For every input: it does not panic, and what is believed was signed, is an event, and
// is for us.
func FuzzAWebhookIsAnEventForUsOrRefused(f *testing.F) {
	for _, payload := range []string{event(), event("account", `"acct_2"`), of(refund()), of(`{"id":{"id":["a"]},"object":null,"metadata":{"a":1}}`), "null", "{}", strings.Repeat("[", 20_000)} {
		f.Add([]byte(payload), "", true)
		f.Add([]byte(payload), signed(payload, testSecret, time.Now()), false)
	}
	f.Add([]byte(event()), "t=-9223372036854775808,v1=,v1=00,=,,", false)
	with := settings("")
	with.WebhookSecret += ",whsec_the_one_before_it"
	client := connect(f, with)
	f.Fuzz(func(t *testing.T, payload []byte, signature string, sign bool) {
		if sign {
			signature = signed(string(payload), testSecret, time.Now())
		}
		got, err := client.ParseEvent(payload, signature)
		if err != nil {
			return
		}
		if webhook.ValidatePayload(payload, signature, testSecret) != nil && webhook.ValidatePayload(payload, signature, "whsec_the_one_before_it") != nil {
			t.Error("believed without a signature")
		}
		if got.ID == "" || got.Type == "" || got.Livemode || got.Account != "" || string(got.Payload) != string(payload) {
			t.Errorf("believed %+v", got)
		}
		for _, text := range []string{got.ID, got.Type, got.ObjectID, got.IntentID, got.Status} {
			if !utf8.ValidString(text) {
				t.Errorf("%q is not UTF-8", text)
			}
		}
	})
}

// The webhook that api.md tells to set up sends every event that is processed: what it leaves out comes a minute late, from the list.
func TestTheGuideNamesEveryEventThatIsProcessed(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range payprovider.EventTypes(stripe.Reader{}) {
		if !strings.Contains(string(guide), "`"+name+"`") {
			t.Errorf("docs/api.md does not name %s", name)
		}
	}
}
