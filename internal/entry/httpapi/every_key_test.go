package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/openapi"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// operations are those of the contract.
func operations(t *testing.T) []openapi.Operation {
	t.Helper()
	document, err := httpapi.LoadContract()
	servers.NoError(t, err)
	return document.Operations
}

// isForPersons reports whether no key may call an operation.
func isForPersons(o openapi.Operation) bool { return slices.Equal(o.Roles, []string{"approver"}) }

// command is a request that succeeds.
type command struct {
	credential, path string
	body             any
}

func (c command) send(s *fleet.System, api int, key string) (a fleet.Answer) {
	for a.Status = http.StatusServiceUnavailable; a.Status == http.StatusServiceUnavailable; { // too many wait for the same lock
		a = s.Do(api, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": key}, c.body)
	}
	return a
}

// newCommand makes what an operation is about, and returns a request for it. A new operation
// fails the test until it is here.
func newCommand(s *fleet.System, operation, app string) (c command) {
	s.T.Helper()
	c.credential = app
	mina, money, reason := s.User("mina"), fleet.Fields{"amount": 1}, fleet.Fields{"reason": "by hand"}
	campaign := func(draft fleet.Fields) string {
		path, _ := sells(s, draft)
		return path
	}
	drawnAtEnd := fleet.Fields{"sale_ends_at": time.Now().Add(time.Hour), "policies": fleet.Fields{"unsold": "draw"}}
	wallet := func() string { return s.Wallet(uuid.NewString(), 1000) }
	bought := func() uuid.UUID { return adopted(s, fixture.Buy(s.T, s.DB, s.Campaign(3), mina, 0, 1)) }
	refund := func() string { return insertRefund(s, bought(), "external", "listed").String() }
	endpoint := func() string {
		return endpointsPath + "/" + asked(s, app, endpointsPath, uuid.NewString(), endpointBody("*")).ID.String()
	}
	seat := []fleet.Fields{{"number": 1}}
	switch operation {
	case "createCampaign":
		c.path, c.body = "/v1/campaigns", fleet.CampaignBody(3)
		c.body.(map[string]any)["name"] = uuid.NewString()
	case "publishCampaign":
		c.path = "/v1/campaigns/" + s.Post("/v1/campaigns", fleet.CampaignBody(3)).ID.String() + "/publish"
	case "pauseCampaign":
		c.path = campaign(nil) + "/pause"
	case "resumeCampaign":
		c.path = campaign(nil)
		s.Post(c.path+"/pause", nil)
		c.path += "/resume"
	case "cancelCampaign":
		c.path, c.body = campaign(nil)+"/cancel", reason
	case "requestDraw":
		c.path = campaign(nil) + "/draw"
	case "voidDraw":
		c.path, c.body = campaign(nil)+"/draw/void", reason
	case "blockPositions":
		c.path, c.body = campaign(drawnAtEnd)+"/positions/block", fleet.Fields{"positions": seat, "reason": "the house"}
	case "unblockPositions":
		c.path = campaign(drawnAtEnd) + "/positions/"
		s.Post(c.path+"block", fleet.Fields{"positions": seat})
		c.path, c.body = c.path+"unblock", fleet.Fields{"positions": seat}
	case "createHold":
		c.path, c.body = campaign(nil)+"/holds", fleet.Fields{"user_id": uuid.NewString(), "quantity": 1}
	case "extendHold":
		c.path = "/v1/holds/" + s.MustHold(fleet.HoldOrder{Campaign: s.Campaign(3), User: uuid.NewString(), Quantity: 1}).ID.String() + "/extend"
	case "requestPurchase":
		c.path, c.body = campaign(nil)+"/purchases", fleet.Fields{"user_id": mina, "selection": fleet.Fields{"quantity": 1}, "payment": external}
	case "cancelPurchase":
		c.path, c.body = "/v1/purchases/"+bought().String()+"/cancel", reason
	case "tryPayment":
		declined, _ := declinedOf(s, s.Campaign(3), mina)
		c.path, c.body = "/v1/purchases/"+declined.String()+"/payment", fleet.Fields{"payment_method": "pm_card_visa"}
	case "openWallet":
		c.path, c.body = "/v1/wallets", fleet.Fields{"owner_id": uuid.NewString(), "currency": "JPY", "initial_balance": 5}
	case "creditWallet":
		c.path, c.body = wallet()+"/credit", money
	case "debitWallet":
		c.path, c.body = wallet()+"/debit", money
	case "authorize":
		c.path, c.body = wallet()+"/authorizations", money
	case "captureAuthorization":
		c.path, c.body = authorize(s, wallet(), 100, 3600)+"/capture", money
	case "voidAuthorization":
		c.path = authorize(s, wallet(), 100, 3600) + "/void"
	case "transfer":
		c.path, c.body = "/v1/transfers", fleet.Fields{"from": fleet.WalletID(wallet()), "to": fleet.WalletID(wallet()), "amount": 1}
	case "eraseUser":
		c.path, c.body = "/v1/users/"+uuid.NewString()+"/erase", fleet.Fields{"reason": "asked"}
		if app == s.Operator {
			c.body = fleet.Fields{"reason": "asked", "client": "all"}
		}
	case "closeMonth":
		fact(s, "2020-01-10")
		c.path, c.body = "/v1/books/months/2020-01/close", fleet.Fields{"zone": "UTC"}
	case "resolveRefund":
		id := refund()
		c.path, c.body = "/v1/refunds/"+id+"/resolve", byHand(s, id)
	case "resolveRefunds":
		campaign := servers.Value[uuid.UUID](s.T, s.DB, `SELECT campaign_id FROM refunds WHERE id = $1`, refund())
		c.path, c.body = "/v1/campaigns/"+campaign.String()+"/refunds/resolve", allByHand(s, campaign, "external")
	case "retryRefund":
		c.path = "/v1/refunds/" + waitingRefund(s, s.Campaign(3), "failed", false).String() + "/retry"
	case "retryPayment", "resolvePayment":
		waiting, end := waits(s, s.Campaign(3), payment.Capturing, payment.WaitsForOperator)
		s.T.Cleanup(end)
		if c.path = "/v1/payments/" + waiting.String() + "/retry"; operation == "resolvePayment" {
			c.path, c.body = strings.Replace(c.path, "retry", "resolve", 1), fleet.Fields{"outcome": "unpaid", "version": fixture.Payment(s.T, s.DB, waiting).Version, "reason": "the intent is gone"}
		}
	case "explainPaymentDiscrepancy":
		c.path, c.body = "/v1/payment-discrepancies/"+newDifference(s).String()+"/explain", fleet.Fields{"version": 0, "reason": "by hand"}
	case "createWebhookEndpoint":
		c.path, c.body = endpointsPath, endpointBody("*")
		c.body.(map[string]any)["description"] = uuid.NewString()
	case "enableWebhookEndpoint":
		c.path = endpoint() + "/enable"
	case "disableWebhookEndpoint":
		c.path = endpoint() + "/disable"
	case "rotateWebhookSecret":
		c.path = endpoint() + "/rotate-secret"
	case "testWebhookEndpoint":
		c.path = endpoint() + "/test"
	case "replayWebhookDelivery":
		c.path = endpoint()
		c.path += "/deliveries/" + decoded[struct {
			EventID string `json:"event_id"`
		}](s, asked(s, app, c.path+"/test", uuid.NewString(), nil)).EventID + "/replay"
	case "replayWebhookDeliveries":
		c.path, c.body = endpoint()+"/replay", fleet.Fields{"from": time.Now().Add(-time.Hour), "to": time.Now().Add(time.Hour)}
	case "withdrawRequest":
		c.path, c.body = "/v1/approvals/"+pendingApproval(s)+"/withdraw", reason
	default:
		s.T.Fatalf("%s is new: say here what it is about", operation)
	}
	return c
}

// pendingApproval inserts a request of the test's operator.
func pendingApproval(s *fleet.System) string {
	s.T.Helper()
	return servers.Value[uuid.UUID](s.T, s.DB, `INSERT INTO approvals (id, requester, operation, target, path, body, requested_by, deciding, preview)
		VALUES ($1, $2, 'wallet.credit', 'mina', '/v1/wallets', '{"owner_id":"mina","currency":"JPY","initial_balance":5}', json_build_object('client', $2::text, 'operation', 'openWallet', 'target', 'mina'), '{}', '[]') RETURNING id`,
		uuidv7.New(), s.Client("ops")).String()
}

// newDifference inserts a difference between our books and those of the provider.
func newDifference(s *fleet.System) uuid.UUID {
	s.T.Helper()
	return servers.Value[uuid.UUID](s.T, s.DB, `INSERT INTO payment_discrepancies (id, kind, object_id, there_amount, there_currency, detail)
		VALUES ($1::uuid, 'unknown-here', 'pi_' || $1::uuid::text, 500, 'JPY', 'captured') RETURNING id`, uuidv7.New())
}

// rows counts the rows of each table but that which an api writes once by itself.
func rows(s *fleet.System) map[string]int {
	s.T.Helper()
	found, err := s.DB.Query(s.T.Context(), `SELECT relname, (xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM ' || relname, false, true, '')))[1]::text::int
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'draw_key_check'`)
	servers.NoError(s.T, err)
	counts, name, n := make(map[string]int), "", 0
	if _, err := pgx.ForEachRow(found, []any{&name, &n}, func() error { counts[name] = n; return nil }); err != nil {
		s.T.Fatal(err)
	}
	return counts
}

// grown are the tables that have more rows than before, and how many.
func grown(s *fleet.System, before map[string]int) map[string]int {
	s.T.Helper()
	now := rows(s)
	for name, n := range before {
		if now[name] -= n; now[name] == 0 {
			delete(now, name)
		}
	}
	return now
}

// essence is what an answer and its repetitions have in common: not the id of the request, nor a secret, which
// is shown once.
func essence(a fleet.Answer) string {
	var document map[string]any
	_ = json.Unmarshal(a.Body, &document)
	delete(document, "request_id")
	delete(document, "secret")
	text, _ := json.Marshal(document)
	return fmt.Sprint(a.Status, " ", a.Header.Get("Content-Type"), " ", a.Header.Get("Location"), " ", a.Header.Get("ETag"), " ", string(text))
}

func isReplay(a fleet.Answer) bool { return a.Header.Get("Idempotent-Replayed") == "true" }

// Of each operation there are five requests, about different things. The first is done once, the second fifty
// times at once with one key, by both credentials of its client at both apis; the others share a key. As many rows
// are made by the fifty as by the one.
func TestEveryOperationWithAKeyIsDoneOnceAndAnswersTheSameAgain(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1, Env: slices.Concat(everyday, takingCards)})
	bought := make(map[string]command)
	for _, o := range operations(t) {
		if !o.NeedsKey || isForPersons(o) || o.ID == "closeMonth" { // one at a time: it has a test of its own
			continue
		}
		app, client := s.Operator, "shop"
		if strings.Contains(o.ID, "Webhook") { // a client has few endpoints
			client = strings.ToLower(o.ID)
		}
		both := []string{s.Operator, s.Operator}
		if slices.Contains(o.Roles, "app") {
			app = s.NewKey(client)
			both = []string{app, s.NewKey(client)}
		}
		one, many, left, right := newCommand(s, o.ID, app), newCommand(s, o.ID, app), newCommand(s, o.ID, app), newCommand(s, o.ID, app)
		before := rows(s)
		alone := one.send(s, 0, o.ID+"-one")
		want := grown(s, before)
		if alone.Status >= 300 || isReplay(alone) {
			t.Errorf("%s: %v %s", o.ID, alone, alone.Body)
			continue
		}

		before = rows(s)
		key := o.ID + "-many"
		answers := fleet.AtOnce(50, func(i int) fleet.Answer {
			same := many
			same.credential = both[i%2]
			return same.send(s, i/2, key)
		})
		replayed, secrets := 0, 0
		for _, a := range answers {
			if essence(a) != essence(answers[0]) || a.Status != alone.Status {
				t.Errorf("%s, at once: %s\nand %s", o.ID, essence(a), essence(answers[0]))
			}
			if isReplay(a) {
				replayed++
			}
			secrets += strings.Count(string(a.Body), "whsec_")
		}
		if got := grown(s, before); replayed != 49 || !maps.Equal(got, want) || secrets > 1 {
			t.Errorf("%s: %d of 50 answers say that they are replays, %d secrets; the rows are %v, by one request %v", o.ID, replayed, secrets, got, want)
		}
		emptyRedis(s)
		if again := many.send(s, 1, key); essence(again) != essence(answers[0]) || !isReplay(again) {
			t.Errorf("%s, when Redis has forgotten it: %v %s", o.ID, again, again.Body)
		}
		before = rows(s)
		refused(t, o.ID+" about something else with the key", one.send(s, 0, key), 422, "idempotency-key-reused")
		if got := grown(s, before); len(got) > 0 {
			t.Errorf("%s: requests that were refused made %v", o.ID, got)
		}

		if o.ID != "blockPositions" && o.ID != "eraseUser" { // position-taken is not in the contract, and a refusal of an erasure leaves its key free
			later := many.send(s, 0, key+"-later") // it is done again, or refused for good
			if again := many.send(s, 1, key+"-later"); later.Status >= 500 || essence(again) != essence(later) || isReplay(later) || !isReplay(again) {
				t.Errorf("%s, with another key: %s\nand again %s", o.ID, essence(later), essence(again))
			}
		}
		two := fleet.AtOnce(20, func(i int) fleet.Answer {
			if i%2 == 0 {
				return left.send(s, i/2, o.ID+"-two")
			}
			return right.send(s, i/2, o.ID+"-two")
		})
		won := 0 // which of the two came first
		if two[1].Status < 300 {
			won = 1
		}
		for i, a := range two {
			if i%2 == won && essence(a) != essence(two[won]) || i%2 != won && a.Refusal() != "idempotency-key-reused" {
				t.Errorf("%s, two requests with one key: %v, when number %d came first", o.ID, a, won)
			}
		}
		if o.ID == "requestPurchase" {
			bought[key] = many
		}
	}
	fleet.CompleteAll(t, s)
	for key, order := range bought { // what was asked for again while it waited is not remembered as it was then
		if a := order.send(s, 0, key); a.State != job.Succeeded || !isReplay(a) {
			t.Errorf("when it is final: %v %s", a, a.Body)
		}
	}
}

// The job ends while the repetitions of its request come.
func TestAllWhoWaitForOneKeyGetTheAnswerOfItsEnd(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(20)
	answers := s.Crowd(50, func(i int) fleet.Order {
		return fleet.Order{Campaign: id, User: "a", Key: "the same", Wait: true, API: i}
	})
	for i, a := range answers {
		if a.Status != http.StatusOK || essence(a) != essence(answers[0]) {
			t.Errorf("request %d: %v\n%s\n%s", i, a, a.Body, answers[0].Body)
		}
	}
	wantEqual(t, "purchases", s.Purchases(id), 1)
}

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
			[]string{"TRIPRIZE_HOLDS_MAX_TTL=200s", "TRIPRIZE_HOLDS_TTL=200s"}, "invalid-request"},
		"holds.max_ttl, extension": {s.App, "/v1/holds/" + extended.ID.String() + "/extend", map[string]any{"ttl_seconds": 300},
			[]string{"TRIPRIZE_HOLDS_MAX_TTL=200s", "TRIPRIZE_HOLDS_TTL=200s"}, "invalid-request"},
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
		wantAnswer(t, fmt.Sprintf("%s: first %v, then", what, first.Header), again, valued{"Location", first.Header.Get("Location")}, isReplayed)
		wantAnswer(t, fmt.Sprintf("%s: a new request", what), s.Do(other, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": uuid.NewString()}, c.body), coded(c.refusal))
		if body, ok := c.body.(map[string]any); ok { // another request with the key is no repetition
			changed := maps.Clone(body)
			changed["metadata"] = map[string]any{"a": "b"}
			if a := s.Do(other, c.credential, http.MethodPost, c.path, map[string]string{"Idempotency-Key": key}, changed); a.Status < 400 || a.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: another request: %v %s", what, a, a.Body)
			}
		}
	}
}
