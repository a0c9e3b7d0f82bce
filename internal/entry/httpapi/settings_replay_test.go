package httpapi_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

// A setting that has changed since, or one of another api, refuses new requests only.
func TestARepeatedRequestIsAnsweredAsUnderTheSettingsOfTheFirst(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Beacon: 1, Env: slices.Concat(takingCards, tellingLoopback)})
	campaign := s.Campaign(6)
	purchases, holds := "/v1/campaigns/"+campaign.String()+"/purchases", "/v1/campaigns/"+campaign.String()+"/holds"
	buy := func(quantity int, payment map[string]any) map[string]any {
		return map[string]any{"user_id": "u", "selection": map[string]any{"quantity": quantity}, "payment": payment}
	}
	card := map[string]any{"method": "card", "payment_method": "pm_card_visa"}
	withBeacon := fleet.CampaignBody(3)
	withBeacon["policies"] = map[string]any{"beacon": true}
	extended := s.MustHold(fleet.HoldOrder{Campaign: campaign, User: "e", Quantity: 1})
	declined, _ := declinedOf(s, campaign, "d")
	for what, c := range map[string]struct {
		credential, path string
		body             any
		env              []string // of another api
		refusal          string
	}{
		"campaigns.max_quantity": {s.App, purchases, buy(3, map[string]any{"method": "external"}), []string{"TRIPRIZE_CAMPAIGNS_MAX_QUANTITY=2"}, "invalid-request"},
		"payments.stripe.key":    {s.App, purchases, buy(1, card), []string{"TRIPRIZE_PAYMENTS_STRIPE_KEY="}, "cards-not-accepted"},
		"payments.return_url":    {s.App, purchases, buy(1, card), []string{"TRIPRIZE_PAYMENTS_RETURN_URL="}, "invalid-request"},
		"another card": {s.App, "/v1/purchases/" + declined.String() + "/payment", map[string]any{"payment_method": "pm_card_visa"},
			[]string{"TRIPRIZE_PAYMENTS_STRIPE_KEY="}, "cards-not-accepted"},
		"holds.max_ttl": {s.App, holds, map[string]any{"user_id": "h", "quantity": 1, "ttl_seconds": 300},
			[]string{"TRIPRIZE_HOLDS_MAX_TTL=200s"}, "invalid-request"},
		"holds.max_ttl, extension": {s.App, "/v1/holds/" + extended.ID.String() + "/extend", map[string]any{"ttl_seconds": 300},
			[]string{"TRIPRIZE_HOLDS_MAX_TTL=200s"}, "invalid-request"},
		"holds.max_positions":     {s.App, holds, map[string]any{"user_id": "p", "quantity": 3}, []string{"TRIPRIZE_HOLDS_MAX_POSITIONS=2"}, "invalid-request"},
		"beacon.relays":           {s.Operator, "/v1/campaigns", withBeacon, []string{"TRIPRIZE_BEACON_RELAYS="}, "invalid-request"},
		"campaigns.max_positions": {s.Operator, "/v1/campaigns", fleet.CampaignBody(5), []string{"TRIPRIZE_CAMPAIGNS_MAX_POSITIONS=10"}, "invalid-request"},
		"webhooks.allow_networks": {s.App, "/v1/webhook-endpoints", map[string]any{"url": "http://127.0.0.1:9999/hook", "events": []string{"*"}},
			[]string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS="}, "invalid-request"},
	} {
		s.RunAPI(c.env...)
		other, key := len(s.URLs)-1, uuid.NewString()
		first := s.Do(0, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": key}, c.body)
		again := s.Do(other, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": key}, c.body)
		if first.Status >= 300 || again.Status != first.Status || again.ID != first.ID || again.ID == uuid.Nil {
			t.Errorf("%s: first %v %s, then %v %s", what, first, first.Body, again, again.Body)
		}
		if again.Header.Get("Location") != first.Header.Get("Location") || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: first %v, then %v", what, first.Header, again.Header)
		}
		if a := s.Do(other, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": uuid.NewString()}, c.body); a.Refusal() != c.refusal {
			t.Errorf("%s: a new request: %v %s", what, a, a.Body)
		}
		if body, ok := c.body.(map[string]any); ok { // another request with the key is no repetition
			changed := maps.Clone(body)
			changed["metadata"] = map[string]any{"a": "b"}
			if a := s.Do(other, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": key}, changed); a.Status < 400 || a.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: another request: %v %s", what, a, a.Body)
			}
		}
	}
}
