package stripesim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const ofAPayment = "charge.captured charge.succeeded payment_intent.amount_capturable_updated payment_intent.created payment_intent.succeeded"

func TestAWebhookIsSentAgainUntilItIsTaken(t *testing.T) {
	s := open(t, Settings{})
	s.answer(500)
	s.do("create pm_card_visa")
	s.types(1)
	until(t, "the failed try is noted", func() bool { return s.server.Totals().Undelivered == 1 })
	s.do("advance 2h")
	s.types(1)
	until(t, "the second failed try is noted", func() bool { return s.server.Totals().Undelivered == 2 })
	s.answer(200)
	s.do("advance 3h")
	s.types(1)
	until(t, "nothing is unsent", func() bool { return s.server.Totals().Unsent == 0 })
	s.do("advance 24h")
	if got := s.have(); len(got) != 3 || s.got[0].ID != s.got[2].ID {
		t.Errorf("%q", got)
	}
}

func TestThePaymentMethodDecidesHowWebhooksCome(t *testing.T) {
	for name, c := range map[string]struct {
		story string
		n     int    // webhooks
		want  string // their types
	}{
		"never":                            {`paid pm_sandbox_webhook_never; create pm_card_visa`, 1, "payment_intent.created"},
		"twice":                            {`paid pm_sandbox_webhook_twice`, 10, ofAPayment + " " + ofAPayment},
		"late: another one overtakes them": {`paid pm_sandbox_webhook_late; create pm_card_visa`, 1, "payment_intent.created"},
		"late: they come":                  {`paid pm_sandbox_webhook_late; advance 2h`, 5, ofAPayment},
		"reversed":                         {`paid pm_sandbox_webhook_reversed`, 5, "payment_intent.succeeded charge.captured payment_intent.amount_capturable_updated charge.succeeded payment_intent.created"},
		"reversed, of a payment that does not end": {`create pm_sandbox_webhook_reversed; confirm; advance 2h`, 3, "payment_intent.amount_capturable_updated charge.succeeded payment_intent.created"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Settings{})
			s.tell(c.story)
			got := s.types(c.n)
			if name == "twice" || strings.HasPrefix(name, "late") {
				got, c.want = sorted(got), strings.Join(sorted(strings.Fields(c.want)), " ")
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q", got)
			}
		})
	}
}

// listed returns the ids, and the type of events, of all pages of a list.
func (s *shop) listed(path string) (all []string) {
	s.t.Helper()
	for after := ""; ; {
		status, _, body := s.raw(http.MethodGet, path+after, "")
		list, _ := body["data"].([]any)
		if status != http.StatusOK {
			s.t.Fatal(status, body)
		}
		for _, one := range list {
			o := one.(map[string]any)
			all = append(all, strings.TrimSpace(fmt.Sprint(o["id"], " ", o["type"])))
		}
		if body["has_more"] != true || strings.Contains(path, "ending_before") {
			return all
		}
		after = "&starting_after=" + strings.Fields(all[len(all)-1])[0]
	}
}

func TestAListHasEverythingOnceTheNewestFirst(t *testing.T) {
	s := open(t, Settings{})
	var made []string
	for range 7 {
		s.do("create pm_card_visa")
		made = append(made, s.pi+" <nil>")
		s.do("advance 1s")
	}
	slices.Reverse(made)
	middle, _, _ := strings.Cut(made[4], " ")
	_, _, body := s.raw(http.MethodGet, "/v1/payment_intents/"+middle, "")
	from := fmt.Sprintf("=%.0f", body["created"])
	for query, want := range map[string][]string{
		"limit=3": made, "limit=2&ending_before=" + middle: made[2:4],
		"created[gte]" + from: made[:5], "created[gt]" + from: made[:4], "created[lte]" + from: made[4:], "created[lt]" + from: made[5:],
	} {
		if got := s.listed("/v1/payment_intents?" + query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestEventsAreFilteredByTypeAndVanishAfterThirtyDays(t *testing.T) {
	s := open(t, Settings{})
	s.tell("create pm_sandbox_webhook_never key=k; confirm; capture") // what is not sent is in the list
	for query, want := range map[string]int{"limit=2": 5, "limit=2&type=payment_intent.*": 3, "limit=2&types[]=charge.captured&types[]=payment_intent.succeeded": 2} {
		if all := s.listed("/v1/events?" + query); len(all) != want {
			t.Errorf("%s: %q", query, all)
		}
	}
	id := strings.Fields(s.listed("/v1/events?limit=2")[0])[0]
	if status, _, e := s.raw(http.MethodGet, "/v1/events/"+id, ""); status != http.StatusOK || e["id"] != id || e["livemode"] != false || e["request"].(map[string]any)["id"] == nil {
		t.Errorf("%d %v", status, e)
	}
	s.do("advance " + (31 * 24 * time.Hour).String())
	until(t, "the events are gone", func() bool { return s.server.Totals().Events == 0 })
	totals := s.server.Totals()
	s.inside(func(kept *state) {
		if len(totals.Intents) != 0 || kept.bytes > 1000 {
			t.Errorf("a payment that ended 30 days ago is kept: %+v, %d bytes", totals, kept.bytes)
		}
	})
}
