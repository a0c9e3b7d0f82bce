package httpapi_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/key"
	"triprize/internal/platform/openapi"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// What an operation is about, for another client; of no client, if no other role than operators may call it.
const (
	notFound   = "is another's"   // it names a resource of a client: for others there is none
	leftOut    = "lists"          // it lists resources: those of others are not among them
	everybodys = "is everybody's" // campaigns, their boards and draws
	makes      = "makes something"
)

// rights are who may call which operations, and what these are about, as product and contract were agreed
// on; it is written down twice so that one cannot change by mistake. A new operation fails the tests until it is here.
var rights = func() map[string]right {
	all := make(map[string]right)
	for of, operations := range map[right]string{
		{"operator", ""}: `createCampaign patchCampaign publishCampaign pauseCampaign resumeCampaign blockPositions unblockPositions requestDraw voidDraw listSweeps runSweep
			cancelCampaign listPayments retryPayment resolvePayment listWaitingRefunds retryRefund listPaymentDiscrepancies explainPaymentDiscrepancy
			listMonths getMonth closeMonth getStatus listAuditTrail listFailures listKeys revokeKey listApprovals getApproval withdrawRequest`,
		{"approver", ""}:                         `approveRequest rejectRequest`,
		{"operator app user public", everybodys}: `listCampaigns getCampaign streamCampaign listPositions getPosition`,
		{"operator app user", makes}:             `createHold requestPurchase`,
		{"operator app user", notFound}: `getHold extendHold releaseHold getWallet listWalletEvents getAuthorization getPurchase getPurchaseProof cancelPurchase tryPayment getJob streamJob
			getRefund`,
		{"operator app", makes}:        `openWallet createWebhookEndpoint eraseUser getUserData`, // the user of who asks
		{"operator app user", leftOut}: `listWallets listPurchases listJobs findPurchases listHolds listUserHolds`,
		{"operator app", notFound}: `creditWallet debitWallet authorize captureAuthorization voidAuthorization transfer resolveRefund getWebhookEndpoint patchWebhookEndpoint
			deleteWebhookEndpoint enableWebhookEndpoint disableWebhookEndpoint rotateWebhookSecret testWebhookEndpoint listWebhookDeliveries getWebhookDelivery
			replayWebhookDelivery replayWebhookDeliveries getWebhookEvent`,
		{"operator app user public nobody", everybodys}: `getDraw getDrawProof submitDrawRound getDrawList streamDraw getDrawLabels`,
		{"operator app", leftOut}:                       `listRefunds resolveRefunds listCampaignPurchases listWebhookEndpoints getExport`,
	} {
		for operation := range strings.FieldsSeq(operations) {
			all[operation] = of
		}
	}
	return all
}()

type right struct{ may, about string }

// isRead reports whether an operation only reads. Viewers may call all of those that operators may, except that they see no keys.
func isRead(o openapi.Operation) bool { return o.Method == http.MethodGet && o.ID != "listKeys" }

func TestEveryOperationIsForItsRolesOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	credentials := map[string]string{
		"nobody": "", "operator": s.Operator, "app": s.App, "user": fleet.TokenFor(t, "u", ""), "public": fleet.TokenFor(t, "v", "public"), "viewer": s.NewKeyOf(key.Viewer, "bi"),
		"wrong key": "tp_000000000000_" + strings.Repeat("0", 64), "half a key": s.App[:20],
		"expired": fleet.TokenFor(t, "u", "", func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), "token of an app": fleet.TokenFor(t, "u", "app"),
	}
	wrong := []string{"nobody", "wrong key", "half a key", "expired", "token of an app"}
	for _, o := range operations(t) {
		if len(o.Roles) == 0 {
			continue
		}
		may := strings.Fields(rights[o.ID].may)
		if len(may) == 0 || (rights[o.ID].about == "") != (len(may) == 1) {
			t.Errorf("%s is new: say here who may call it, and what it is about", o.ID)
		}
		if slices.Contains(may, "operator") && isRead(o) {
			may = append(may, "viewer")
		}
		path := strings.NewReplacer("{campaign}", uuid.NewString(), "{purchase}", uuid.NewString(), "{job}", uuid.NewString(),
			"{endpoint}", uuid.NewString(), "{event}", uuid.NewString(), "{user}", "u", "{kind}", "purchases", "{month}", "2020-01", "{sweep}", "old-records", "{prefix}", "0123456789ab", "{approval}", uuid.NewString(), "{layer}", "1", "{column}", "1").Replace(o.Path)
		for role, credential := range credentials {
			methods := []string{o.Method}
			if o.Method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			for _, method := range methods {
				a := s.Do(0, credential, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
				want := "through"
				switch {
				case role == "nobody" && slices.Contains(may, role): // only what is published
				case slices.Contains(wrong, role):
					want = "401"
				case !slices.Contains(may, role):
					want = "403"
				}
				got := "through"
				if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden || a.Err != nil {
					got = fmt.Sprint(a.Status)
				}
				if got != want || a.Status >= 500 {
					t.Errorf("%s %s as %s: want %s, got %v", method, o.ID, role, want, a)
				}
				if got == "403" && method != http.MethodHead && !fleet.Contains(a.Body, "the role "+role+" may not do this") {
					t.Errorf("%s %s as %s: %s", method, o.ID, role, a.Body)
				}
				if got == "401" && method != http.MethodHead && (a.Refusal() != "unauthenticated" || a.Header.Get("WWW-Authenticate") == "" || credential != "" && fleet.Contains(a.Body, credential)) {
					t.Errorf("%s %s as %s: %v %s", method, o.ID, role, a, a.Body)
				}
			}
		}
	}
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
	o["hold"] = post("/v1/campaigns/"+open.String()+"/holds", fleet.Fields{"user_id": "alice", "quantity": 1, "ttl_seconds": 600}).ID.String()
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
	case "requestPurchase":
		return fleet.Fields{"user_id": o["user"], "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "wallet"}}
	case "createHold":
		return fleet.Fields{"user_id": o["user"], "quantity": 1}
	case "submitDrawRound":
		return fleet.Fields{"signature": strings.Repeat("0f", 48)}
	case "resolveRefund":
		return fleet.Fields{"amount": 1, "reason": "by bank transfer"}
	case "resolveRefunds":
		return fleet.Fields{"refunds": []fleet.Fields{{"id": cmp.Or(o["refund"], uuid.NewString()), "amount": 1}}, "reason": "by bank transfer"}
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
		refund := servers.Value[uuid.UUID](t, s.DB, `SELECT id FROM refunds WHERE campaign_id = $1 AND client = $2`, cancelled, client)
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
		{"a viewer", s.NewKeyOf(key.Viewer, "bi"), 0, "viewer", true},
	}
	listed := map[string]string{"listRefunds": mine["refund"], "listCampaignPurchases": mine["purchase"], "listPurchases": mine["purchase"], "findPurchases": mine["purchase"],
		"listHolds": mine["hold"], "listUserHolds": mine["hold"], "listWallets": mine["wallet"], "listJobs": mine["job"], "getExport": mine["purchase"], "listWebhookEndpoints": mine["endpoint"]}
	queries := map[string]string{"findPurchases": "?reference=order-1", "listHolds": "?campaign_id=" + open.String(), "listWallets": "?owner_id=alice", "listJobs": "?limit=200", "getExport": "?from=2026-11-01&to=2090-01-01"}
	now := func() string {
		return servers.Value[string](t, s.DB, `
			SELECT concat_ws(' ', w.balance, w.held, w.version, p.state, h.state, h.expires_at, r.state, e.description, e.disabled_at)
			FROM wallets w, purchases p, holds h, refunds r, webhook_endpoints e WHERE w.id = $1 AND p.id = $2 AND h.id = $3 AND r.id = $4 AND e.id = $5`,
			mine["wallet"], mine["purchase"], mine["hold"], mine["refund"], mine["endpoint"])
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
		for _, o := range operations(t) {
			about := rights[o.ID].about
			if about != notFound && about != leftOut || !slices.Contains(o.Roles, caller.role) {
				continue // TestEveryOperationIsForItsRolesOnly
			}
			campaign := open
			if strings.Contains(o.ID, "Refunds") {
				campaign = cancelled
			}
			if caller.sees && (o.ID == "resolveRefunds" || o.ID == "deleteWebhookEndpoint") {
				continue // what is found by the others would be gone
			}
			path := strings.NewReplacer("{campaign}", campaign.String(), "{kind}", "purchases").Replace(o.Path)
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
			case o.ID == "listJobs" && fleet.Contains(a.Body, `"id":"`+mine["job"]) != (caller.sees && caller.role != "user"):
				t.Errorf("%s: %s lists %s: %v %s", o.ID, caller.name, listed[o.ID], a, a.Body)
			case about == leftOut && a.Status >= 300 && (caller.sees || a.Status != http.StatusNotFound):
				t.Errorf("%s: %s: %v %s", o.ID, caller.name, a, a.Body)
			}
		}
	}
	for kind, what := range map[string]string{"purchases": "purchase", "refunds": "refund", "wallets": "wallet"} {
		wantAnswer(t, "the export of another app", s.Do(0, kiosk, http.MethodGet, "/v1/exports/"+kind+"?from=2026-11-01&to=2090-01-01", nil, nil), theirs[what], without(mine[what]))
	}
	for _, kind := range []string{"journal", "payouts", "ledger"} {
		refused(t, "an app exports the "+kind, s.Do(0, shop, http.MethodGet, "/v1/exports/"+kind+"?from=2026-11-01&to=2090-01-01", nil, nil), 403, "forbidden")
	}
	for what, body := range map[string]string{"in another's name": `{"user_id":"otto","selection":{"quantity":1},"payment":{"method":"wallet"}}`, "paid, she says": strings.Replace(goodPurchase, `"a"`, `"alice"`, 1)} {
		a := s.Do(0, fleet.TokenFor(t, "alice", ""), http.MethodPost, "/v1/campaigns/"+open.String()+"/purchases", map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.RawJSON(body))
		refused(t, "a user buys "+what, a, 403, "forbidden")
	}
	wantAnswer(t, "the board of the public", s.Do(0, fleet.TokenFor(t, "alice", "public"), http.MethodGet, board, nil, nil), 200, without("user_id"))
	across := func(key, from, to string) fleet.Answer {
		return s.Do(0, key, http.MethodPost, "/v1/transfers", map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.Fields{"from": from, "to": to, "amount": 1})
	}
	wantAnswer(t, "an app moves money to another's wallet", across(kiosk, theirs["wallet"], mine["wallet"]), 404)
	wantAnswer(t, "an operator moves money between clients", across(s.Operator, theirs["wallet"], mine["wallet"]), 201)
	third := s.Do(0, s.NewKey("third"), http.MethodPost, "/v1/campaigns/"+open.String()+"/purchases", map[string]string{"Idempotency-Key": "by wallet", "Prefer": fleet.UntilFinal},
		fleet.Fields{"user_id": "alice", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "wallet"}})
	wantAnswer(t, "a purchase is paid from another client's wallet", third, coded("insufficient-funds"))
	fresh := s.Campaign(3)
	held := s.MustHold(fleet.HoldOrder{Campaign: fresh, User: "alice", At: []shape.Position{fixture.At(1, 1)}})
	taken := s.Do(0, kiosk, http.MethodPost, "/v1/campaigns/"+fresh.String()+"/holds", map[string]string{"Idempotency-Key": "taken"},
		fleet.Fields{"user_id": "alice", "positions": []fleet.Fields{{"layer": 1, "column": 1}}})
	wantAnswer(t, "another app learns of her hold", taken, coded("position-taken"), without(held.ID.String()))
	wantAnswer(t, "a purchase uses another client's hold", s.BuyChosen(0, open, "alice", uuid.MustParse(theirs["hold"])), coded("not-found"))
}

// A campaign that is not published is the operators' alone: nobody else can tell it from one
// that is not there.
func TestADraftIsTheOperatorsAlone(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With()
	draft := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	given := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	mustAnswer(t, "", s.Post("/v1/campaigns/"+given+"/cancel", fleet.RawJSON(`{"reason":"a mistake"}`)), 202)
	callers := map[string]string{"app": s.App, "user": fleet.TokenFor(t, s.User("mina"), ""), "public": fleet.TokenFor(t, "v", "public"), "anonymous": ""}
	asked := 0
	for _, o := range operations(t) {
		if !strings.Contains(o.Path, "{campaign}") {
			continue
		}
		for role, credential := range callers {
			if !slices.Contains(o.Roles, role) && (role != "anonymous" || !o.Open) {
				continue
			}
			for _, id := range []string{draft, given, uuid.NewString()} {
				path := strings.NewReplacer("{campaign}", id, "{layer}", "1", "{column}", "1", "{user}", s.User("mina"), "{leaf}", "0", "{index}", "0").Replace(o.Path)
				header := map[string]string{"Idempotency-Key": uuid.NewString()}
				a := s.Do(0, credential, o.Method, path, header, bodyOf(o.ID, owned{"user": s.User("mina")}))
				wantAnswer(t, fmt.Sprintf("%s %s by %s", o.Method, o.Path, role), a, 404, without("draft"))
				asked++
			}
		}
	}
	if asked < 30 {
		t.Errorf("only %d requests", asked)
	}
	for role, credential := range callers {
		for _, query := range []string{"", "?state=pending", "?state=cancelled"} {
			wantAnswer(t, fmt.Sprintf("%s is told of a draft by %q", role, query), s.Do(0, credential, http.MethodGet, "/v1/campaigns"+query, nil, nil), without(draft), without(given))
		}
	}
	wantAnswer(t, "an operator is not", s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns?state=pending", nil, nil), draft)
}
