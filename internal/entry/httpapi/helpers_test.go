package httpapi_test

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { fleet.Main(m) }

// everyday are the settings of the systems that tests share: tokens are trusted, streams
// are lively, and what has a bound over all tests together has none.
var everyday = slices.Concat(fleet.Trusting.Env, []string{fleet.Lively, "TRIPRIZE_STREAMS_INTERVAL=20ms",
	"TRIPRIZE_ACCEPT_LONGEST_WAIT=24h", "TRIPRIZE_LIMITS_ADDRESS_RATE=0"})

// The systems that tests share.
var (
	quiet      = fleet.Options{APIs: 2, Workers: -1, Schedulers: -1, Env: everyday} // what is accepted stays queued
	cardsTaken = fleet.Options{Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, takingCards)}
	busy       = fleet.Options{APIs: 2, Workers: 2, Env: everyday}
)

// withUsers gives a test an api of its own, where tokens are those of the users of its app.
func withUsers(s *fleet.System) *fleet.System {
	return s.With("TRIPRIZE_TOKENS_CLIENT=" + s.Client("shop"))
}

// What wantAnswer compares an answer with, beside its status, the state of its job, its id, and a text of its body.
type (
	coded   string    // it is refused with this code; empty: not refused
	without string    // a text that its body does not have
	having  string    // a header that it has
	valued  [2]string // a header and its value
)

const isReplayed = having("Idempotent-Replayed")

// wantAnswer tells whether an answer is all that is wanted of it, and fails the test if not.
func wantAnswer(t *testing.T, what string, a fleet.Answer, wanted ...any) bool {
	t.Helper()
	for _, want := range wanted {
		is := false
		switch want := want.(type) {
		case int:
			is = a.Status == want
		case job.State:
			is = a.State == want
		case uuid.UUID:
			is = a.ID == want
		case string:
			is = fleet.Contains(a.Body, want)
		case coded:
			is = a.Refusal() == string(want)
		case without:
			is = !fleet.Contains(a.Body, string(want))
		case having:
			is = a.Header.Get(string(want)) != ""
		case valued:
			is = a.Header.Get(want[0]) == want[1]
		}
		if !is {
			t.Errorf("%s: %v %s\n%v\nwant %T %v", cmp.Or(what, "the answer"), a, fleet.Tail(a.Body, 2000), a.Header, want, want)
			return false
		}
	}
	return true
}

// mustAnswer is wantAnswer that ends the test.
func mustAnswer(t *testing.T, what string, a fleet.Answer, wanted ...any) {
	t.Helper()
	if !wantAnswer(t, what, a, wanted...) {
		t.FailNow()
	}
}

// drawnCampaign sells a campaign of six positions and waits for its draw. It returns the
// purchase of the first three.
func drawnCampaign(s *fleet.System) (path string, purchase uuid.UUID) {
	s.T.Helper()
	id := s.Campaign(3)
	first := s.Buy(fleet.Order{Campaign: id, User: "mina", Quantity: 3, Wait: true})
	s.Buy(fleet.Order{Campaign: id, User: "otto", Quantity: 3, Wait: true})
	s.AwaitDrawn(id)
	return "/v1/campaigns/" + id.String() + "/draw", first.Result.PurchaseID
}

// webhookSecret signs the webhooks of systems that take cards.
const webhookSecret = "whsec_of_the_tests_of_this_package"

// takingCards are the settings of systems that take cards. Nothing answers at the
// provider's address: an api never calls it.
var takingCards = []string{"TRIPRIZE_PAYMENTS_ALLOW_TEST=true", "TRIPRIZE_PAYMENTS_STRIPE_KEY=sk_test_nobody", "TRIPRIZE_PAYMENTS_STRIPE_URL=http://127.0.0.1:1",
	"TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET=" + webhookSecret, "TRIPRIZE_PAYMENTS_RETURN_URL=https://shop.test/back"}

// exec changes rows behind the back of a system.
func exec(s *fleet.System, sql string, args ...any) {
	s.T.Helper()
	servers.Exec(s.T, s.DB, sql, args...)
}

// orderByCard sends a purchase by card and does not wait for it.
func orderByCard(s *fleet.System, credential string, campaign uuid.UUID, user, key string, header ...string) fleet.Answer {
	headers := map[string]string{"Idempotency-Key": key}
	for pair := range slices.Chunk(header, 2) {
		headers[pair[0]] = pair[1]
	}
	return s.Do(0, credential, http.MethodPost, "/v1/campaigns/"+campaign.String()+"/purchases", headers, map[string]any{
		"user_id": user, "selection": map[string]any{"quantity": 1}, "payment": map[string]any{"method": "card", "payment_method": "pm_card_visa"}})
}

// adopted makes a purchase of a fixture one of the test's app.
func adopted(s *fleet.System, purchase uuid.UUID) uuid.UUID {
	s.T.Helper()
	exec(s, `UPDATE purchases SET client = $2 WHERE id = $1`, purchase, s.Client("shop"))
	exec(s, `UPDATE jobs SET client = $2 WHERE id = $1`, purchase, s.Client("shop"))
	return purchase
}

// progress sets what a job says of itself, and tells those who wait for it.
func announced(s *fleet.System, id uuid.UUID, state, announced string) {
	s.T.Helper()
	exec(s, `UPDATE jobs SET state = $2, progress = $3, finished_at = CASE WHEN $2 IN ('succeeded', 'failed') THEN clock_timestamp() END,
		problem = CASE WHEN $2 = 'failed' THEN '{"code":"payment-declined","detail":"Your card has insufficient funds.","decline_code":"insufficient_funds","advice":"try_again_later"}'::json END
		WHERE id = $1`, id, state, announced)
	announcements := job.NewAnnouncements(s.Redis, s.Settings.Redis.Namespace)
	servers.NoError(s.T, announcements.Publish(s.T.Context(), []uuid.UUID{id}))
}

// byHand says that a refund was made by hand, over its amount.
func byHand(s *fleet.System, refund string) fleet.Fields {
	s.T.Helper()
	id := path.Base(refund)
	return fleet.Fields{"amount": servers.Value[int64](s.T, s.DB, `SELECT coalesce((SELECT amount FROM refunds WHERE id = $1), 1)`, id), "reason": "paid back in cash"}
}

// allByHand says so of all refunds of a campaign by one method.
func allByHand(s *fleet.System, campaign uuid.UUID, method string) fleet.Fields {
	s.T.Helper()
	made := servers.Value[string](s.T, s.DB, `SELECT json_agg(json_build_object('id', id, 'amount', amount)) FROM refunds WHERE campaign_id = $1 AND method = $2`, campaign, method)
	return fleet.Fields{"refunds": json.RawMessage(made), "reason": "paid back in cash"}
}

// insertRefund inserts a refund of a purchase. It is taken away before the system is
// audited: nothing else fits it.
func insertRefund(s *fleet.System, purchase uuid.UUID, method, state string) (id uuid.UUID) {
	s.T.Helper()
	id = uuidv7.New()
	s.T.Cleanup(func() {
		exec(s, `DELETE FROM refunds WHERE id = $1`, id)
		exec(s, `DELETE FROM payment_steps WHERE purchase_id = $1`, purchase)
	})
	exec(s, `
		INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, attempt, attempt_at, provider_id, failure)
		SELECT $1, id, 1, campaign_id, user_id, $3, amount, currency, 'campaign-cancelled', $4, c.n, CASE WHEN c.n > 0 THEN clock_timestamp() END,
		       CASE WHEN c.n > 0 THEN 're_' || id END, CASE WHEN c.n > 0 THEN 'expired_or_canceled_card' END
		FROM purchases, (SELECT CASE $3 WHEN 'card' THEN 1 ELSE 0 END AS n) c WHERE id = $2`, id, purchase, method, state)
	return id
}

// event is an event of the provider.
func event(id string) string {
	return fmt.Sprintf(`{"id":%q,"object":"event","type":"payment_intent.succeeded","api_version":"2026-03-25.dahlia","created":%d,"livemode":false,`+
		`"data":{"object":{"id":"pi_1","object":"payment_intent","status":"succeeded","metadata":{}}}}`, id, time.Now().Unix())
}

// signed is the header of a webhook, as the provider makes it.
func signed(body, secret string, at time.Time) map[string]string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "." + body))
	return map[string]string{"Stripe-Signature": "t=" + stamp + ",v1=" + hex.EncodeToString(mac.Sum(nil))}
}

// webhook sends an event as the provider does.
func sendEvent(s *fleet.System, body string, header map[string]string) fleet.Answer {
	return s.Do(0, "", http.MethodPost, "/webhooks/stripe", header, fleet.RawJSON(body))
}

// count returns the result of a query for a number.
func count(s *fleet.System, sql string, args ...any) int {
	s.T.Helper()
	return servers.Value[int](s.T, s.DB, sql, args...)
}

// decoded decodes the body of an answer.
func decoded[T any](s *fleet.System, a fleet.Answer) (v T) {
	s.T.Helper()
	if err := json.Unmarshal(a.Body, &v); err != nil {
		s.T.Fatalf("%v: %s", err, a.Body)
	}
	return v
}

// wantEqual compares what is there with what is wanted.
func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
