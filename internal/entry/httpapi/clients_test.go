package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// What an operation is about, for another client.
const (
	notFound   = "is another's"          // it names a resource of a client: for others there is none
	leftOut    = "lists"                 // it lists resources: those of others are not among them
	everybodys = "is everybody's"        // campaigns, their boards and draws
	makes      = "makes something"       // of the caller's own
	operators  = "is the operators' own" // no other role may call it
)

// aboutWhat says of every operation what it is about. A new one fails the test until it is here.
var aboutWhat = map[string]string{
	"getPurchase": notFound, "getPurchaseProof": notFound, "tryPayment": notFound, "cancelPurchase": notFound,
	"getHold": notFound, "releaseHold": notFound, "extendHold": notFound, "getRefund": notFound, "resolveRefund": notFound,
	"getWallet": notFound, "listWalletEvents": notFound, "creditWallet": notFound, "debitWallet": notFound, "authorize": notFound, "getAuthorization": notFound,
	"captureAuthorization": notFound, "voidAuthorization": notFound, "transfer": notFound, "getJob": notFound, "streamJob": notFound,
	"getWebhookEndpoint": notFound, "patchWebhookEndpoint": notFound, "deleteWebhookEndpoint": notFound, "enableWebhookEndpoint": notFound,
	"disableWebhookEndpoint": notFound, "rotateWebhookSecret": notFound, "testWebhookEndpoint": notFound, "replayWebhookDeliveries": notFound,
	"listWebhookDeliveries": notFound, "getWebhookDelivery": notFound, "replayWebhookDelivery": notFound, "getWebhookEvent": notFound,

	"listRefunds": leftOut, "resolveRefunds": leftOut, "listCampaignPurchases": leftOut, "listPurchases": leftOut, "findPurchases": leftOut, "listHolds": leftOut,
	"listUserHolds": leftOut, "listWallets": leftOut, "listJobs": leftOut, "listWebhookEndpoints": leftOut,

	"listCampaigns": everybodys, "getCampaign": everybodys, "listPositions": everybodys, "getPosition": everybodys, "streamCampaign": everybodys,
	"getDraw": everybodys, "submitDrawRound": everybodys, "getDrawProof": everybodys, "getDrawList": everybodys, "streamDraw": everybodys, "getDrawLabels": everybodys,

	"requestPurchase": makes, "createHold": makes, "openWallet": makes, "createWebhookEndpoint": makes,

	"createCampaign": operators, "patchCampaign": operators, "publishCampaign": operators, "pauseCampaign": operators, "resumeCampaign": operators, "cancelCampaign": operators,
	"listWaitingRefunds": operators, "retryRefund": operators, "listPayments": operators, "listPaymentDifferences": operators, "explainPaymentDifference": operators,
	"retryPayment": operators, "resolvePayment": operators, "requestDraw": operators, "voidDraw": operators, "blockPositions": operators, "unblockPositions": operators,
	"listSweeps": operators, "runSweep": operators,
}

// owned are resources of one client, for the paths, queries and bodies of operations.
type owned map[string]string

// ownedBy makes one of everything for alice at the client of a key, in campaigns that all share.
func ownedBy(s *fleet.System, key string, cancelled uuid.UUID, open uuid.UUID) owned {
	s.T.Helper()
	post := func(path string, body any) fleet.Answer {
		s.T.Helper()
		a := s.Do(0, key, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal}, body)
		if a.Status >= 300 || a.State == "failed" {
			s.T.Fatalf("%s: %v %s", path, a, a.Body)
		}
		return a
	}
	external := fleet.Fields{"user_id": "alice", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external", "reference": "order-1"}}
	o := owned{}
	o["endpoint"] = post(endpointsPath, endpointBody("purchase.*")).ID.String()
	o["event"] = fleet.As[struct {
		EventID uuid.UUID `json:"event_id"`
	}](s.T, post(endpointsPath+"/"+o["endpoint"]+"/test", fleet.Fields{})).EventID.String()
	post("/v1/campaigns/"+cancelled.String()+"/purchases", external)
	bought := post("/v1/campaigns/"+open.String()+"/purchases", external)
	o["purchase"], o["job"] = bought.Result.PurchaseID.String(), bought.ID.String()
	o["hold"] = post("/v1/campaigns/"+open.String()+"/holds", fleet.Fields{"user_id": "alice", "quantity": 1}).ID.String()
	o["wallet"] = post("/v1/wallets", fleet.Fields{"owner_id": "alice", "currency": "JPY", "initial_balance": 1000}).ID.String()
	o["second"] = post("/v1/wallets", fleet.Fields{"owner_id": "bob", "currency": "JPY", "initial_balance": 1000}).ID.String()
	o["authorization"] = post("/v1/wallets/"+o["wallet"]+"/authorizations", fleet.Fields{"amount": 10}).ID.String()
	return o
}

// bodyOf is the body of a request to an operation, so that nothing but whose it is refuses it.
func bodyOf(operation string, o owned) any {
	switch operation {
	case "creditWallet", "debitWallet", "authorize":
		return fleet.Fields{"amount": 1}
	case "captureAuthorization", "voidAuthorization", "cancelPurchase", "testWebhookEndpoint", "extendHold", "rotateWebhookSecret", "enableWebhookEndpoint", "disableWebhookEndpoint":
		return fleet.Fields{}
	case "transfer":
		return fleet.Fields{"from": o["wallet"], "to": o["second"], "amount": 1}
	case "tryPayment":
		return fleet.Fields{"payment_method": "pm_card_visa"}
	case "resolveRefund", "resolveRefunds":
		return fleet.Fields{"reason": "by bank transfer"}
	case "patchWebhookEndpoint":
		return fleet.Fields{"description": "mine"}
	case "replayWebhookDeliveries":
		return fleet.Fields{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
	}
	return nil
}

// Every operation that names or lists resources, as each caller finds what alice has at the client shop:
// her own app and operators find it; another app, alice as a user of another app, and another user find
// nothing, and change nothing.
func TestNoClientSeesOrChangesWhatIsAnothers(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: slices.Concat(everyday, takingCards, []string{"TRIPRIZE_TOKENS_CLIENT=shop"})})
	s.RunAPI("TRIPRIZE_TOKENS_CLIENT=kiosk") // the second api: its issuer's users are the kiosk's
	shop, kiosk := s.App, s.NewKey("kiosk")
	cancelled, open := s.Campaign(4), s.Campaign(4)
	mine, theirs := ownedBy(s, shop, cancelled, open), ownedBy(s, kiosk, cancelled, open)
	end := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+cancelled.String()+"/cancel", map[string]string{"Idempotency-Key": "end", "Prefer": fleet.UntilFinal}, fleet.Fields{"reason": "rain"})
	if end.State != "succeeded" {
		t.Fatalf("%v %s", end, end.Body)
	}
	for client, o := range map[string]owned{"shop": mine, "kiosk": theirs} {
		var refund uuid.UUID
		if err := s.DB.QueryRow(t.Context(), `SELECT id FROM refunds WHERE campaign_id = $1 AND client = $2`, cancelled, client).Scan(&refund); err != nil {
			t.Fatal(err)
		}
		o["refund"], o["user"] = refund.String(), "alice"
	}
	callers := []struct {
		name, credential string
		api              int
		role             string
		sees             bool
	}{
		{"another app", kiosk, 0, "app", false},
		{"alice at another app", fleet.TokenFor(t, "alice", ""), 1, "user", false},
		{"another user", fleet.TokenFor(t, "mallory", ""), 0, "user", false},
		{"alice", fleet.TokenFor(t, "alice", ""), 0, "user", true},
		{"her app", shop, 0, "app", true},
		{"an operator", s.Operator, 0, "operator", true},
	}
	document, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{"listRefunds": mine["refund"], "listCampaignPurchases": mine["purchase"], "listPurchases": mine["purchase"], "findPurchases": mine["purchase"],
		"listHolds": mine["hold"], "listUserHolds": mine["hold"], "listWallets": mine["wallet"], "listJobs": mine["job"], "listWebhookEndpoints": mine["endpoint"]}
	queries := map[string]string{"findPurchases": "?reference=order-1", "listHolds": "?campaign_id=" + open.String(), "listWallets": "?owner_id=alice", "listJobs": "?limit=200", "streamWebhooks": "?events=none"}
	now := func() (state string) {
		err := s.DB.QueryRow(t.Context(), `
			SELECT concat_ws(' ', w.balance, w.held, w.version, p.state, h.state, h.expires_at, r.state, e.description, e.disabled_at)
			FROM wallets w, purchases p, holds h, refunds r, webhook_endpoints e WHERE w.id = $1 AND p.id = $2 AND h.id = $3 AND r.id = $4 AND e.id = $5`,
			mine["wallet"], mine["purchase"], mine["hold"], mine["refund"], mine["endpoint"]).Scan(&state)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	before := now()
	board := "/v1/campaigns/" + open.String() + "/positions"
	seat := fleet.As[struct {
		Positions []shape.Position `json:"positions"`
	}](t, s.Do(0, shop, http.MethodGet, "/v1/holds/"+mine["hold"], nil, nil)).Positions[0]
	for _, caller := range callers {
		if caller.role == "user" { // the board is everybody's; what is one's own on it is not
			want := map[string]int{"alice": 2, "alice at another app": 2}[caller.name]
			a := s.Do(caller.api, caller.credential, http.MethodGet, board, nil, nil)
			if n := strings.Count(string(a.Body), `"user_id":"alice"`); a.Status != http.StatusOK || n != want {
				t.Errorf("on the board %d positions are of %s, not %d: %v", n, caller.name, want, a)
			}
			if n := strings.Count(string(a.Body), `"state":"available"`); n != 6 { // two are sold, and two held
				t.Errorf("for %s %d positions are free: %s", caller.name, n, a.Body)
			}
			a = s.Do(caller.api, caller.credential, http.MethodGet, fmt.Sprintf("%s/%d/%d", board, seat.Layer, seat.Column), nil, nil)
			if a.Status != http.StatusOK || fleet.Contains(a.Body, "alice") != caller.sees {
				t.Errorf("the position that alice holds, for %s: %v %s", caller.name, a, a.Body)
			}
		}
		if after := now(); caller.name == "alice" && after != before { // those before her are others
			t.Errorf("others have changed what alice has: %s, was %s", after, before)
		}
		for _, o := range document.Operations {
			about := aboutWhat[o.ID]
			if about == "" && len(o.Roles) > 0 {
				t.Errorf("%s is new: say here what it is about", o.ID)
			}
			if (about == operators) != (len(o.Roles) == 1) || about != notFound && about != leftOut || !slices.Contains(o.Roles, caller.role) {
				continue // TestEveryOperationIsForItsRolesOnly
			}
			campaign := open
			if strings.Contains(o.ID, "Refunds") {
				campaign = cancelled
			}
			if caller.sees && (o.ID == "resolveRefunds" || o.ID == "deleteWebhookEndpoint") {
				continue // what is found by the others would be gone
			}
			path := strings.ReplaceAll(o.Path, "{campaign}", campaign.String())
			for name, id := range mine {
				path = strings.ReplaceAll(path, "{"+name+"}", id)
			}
			a := s.Do(caller.api, caller.credential, o.Method, path+queries[o.ID], map[string]string{"Idempotency-Key": uuid.NewString()}, bodyOf(o.ID, mine))
			switch {
			case about == notFound && !caller.sees && a.Status != http.StatusNotFound:
				t.Errorf("%s: %s finds what is another's: %v %s", o.ID, caller.name, a, a.Body)
			case about == notFound && caller.sees && a.Status == http.StatusNotFound && !(caller.role == "user" && strings.HasSuffix(o.ID, "Job")): // the app's jobs about a user are the app's
				t.Errorf("%s: %s does not find it: %v %s", o.ID, caller.name, a, a.Body)
			case about == leftOut && listed[o.ID] != "" && o.ID != "listJobs" && a.Status != http.StatusNotFound && fleet.Contains(a.Body, listed[o.ID]) != caller.sees:
				t.Errorf("%s: %s lists %s: %v %s", o.ID, caller.name, listed[o.ID], a, a.Body)
			case o.ID == "listJobs" && fleet.Contains(a.Body, mine["job"]) != (caller.sees && caller.role != "user"):
				t.Errorf("%s: %s lists %s: %v %s", o.ID, caller.name, listed[o.ID], a, a.Body)
			case about == leftOut && a.Status >= 300 && (caller.sees || a.Status != http.StatusNotFound):
				t.Errorf("%s: %s: %v %s", o.ID, caller.name, a, a.Body)
			}
		}
	}
	csv := s.Do(0, kiosk, http.MethodGet, "/v1/campaigns/"+open.String()+"/purchases", map[string]string{"Accept": "text/csv"}, nil)
	if !fleet.Contains(csv.Body, theirs["purchase"]) || fleet.Contains(csv.Body, mine["purchase"]) {
		t.Errorf("the export of another app: %s", csv.Body)
	}
	across := func(key, from, to string) fleet.Answer {
		return s.Do(0, key, http.MethodPost, "/v1/transfers", map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.Fields{"from": from, "to": to, "amount": 1})
	}
	if a := across(kiosk, theirs["wallet"], mine["wallet"]); a.Status != http.StatusNotFound {
		t.Errorf("an app moves money to another's wallet: %v %s", a, a.Body)
	}
	if a := across(s.Operator, theirs["wallet"], mine["wallet"]); a.Status != http.StatusCreated {
		t.Errorf("an operator moves money between clients: %v %s", a, a.Body)
	}
	third := s.Do(0, s.NewKey("third"), http.MethodPost, "/v1/campaigns/"+open.String()+"/purchases", map[string]string{"Idempotency-Key": "by wallet", "Prefer": fleet.UntilFinal},
		fleet.Fields{"user_id": "alice", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "wallet"}})
	if third.Refusal() != "insufficient-funds" {
		t.Errorf("a purchase is paid from another client's wallet: %v %s", third, third.Body)
	}
	fresh := s.Campaign(3)
	held := s.MustHold(fleet.HoldOrder{Campaign: fresh, User: "alice", At: []shape.Position{fixture.At(1, 1)}})
	taken := s.Do(0, kiosk, http.MethodPost, "/v1/campaigns/"+fresh.String()+"/holds", map[string]string{"Idempotency-Key": "taken"},
		fleet.Fields{"user_id": "alice", "positions": []fleet.Fields{{"layer": 1, "column": 1}}})
	if taken.Refusal() != "position-taken" || fleet.Contains(taken.Body, held.ID.String()) {
		t.Errorf("another app learns of her hold: %v %s", taken, taken.Body)
	}
	if a := s.BuyChosen(0, open, "alice", uuid.MustParse(theirs["hold"])); a.Refusal() != "not-found" {
		t.Errorf("a purchase uses another client's hold: %v %s", a, a.Body)
	}
}
