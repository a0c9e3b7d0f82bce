package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"triprize/internal/entry/httpapi"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
)

// mayCall is who may call which operation, as product and contract were agreed
// on; it is written down twice so that one cannot change by mistake.
var mayCall = map[string]string{
	"createCampaign":       "operator",
	"listCampaigns":        "operator app user viewer",
	"getCampaign":          "operator app user viewer",
	"patchCampaign":        "operator",
	"publishCampaign":      "operator",
	"pauseCampaign":        "operator",
	"resumeCampaign":       "operator",
	"streamCampaign":       "operator app user viewer",
	"listPositions":        "operator app user viewer",
	"getPosition":          "operator app user viewer",
	"blockPositions":       "operator",
	"unblockPositions":     "operator",
	"createHold":           "operator app user",
	"getHold":              "operator app user",
	"extendHold":           "operator app user",
	"releaseHold":          "operator app user",
	"openWallet":           "operator app",
	"listWallets":          "operator app user",
	"getWallet":            "operator app user",
	"listWalletEvents":     "operator app user",
	"creditWallet":         "operator app",
	"debitWallet":          "operator app",
	"authorize":            "operator app",
	"getAuthorization":     "operator app user",
	"captureAuthorization": "operator app",
	"voidAuthorization":    "operator app",
	"transfer":             "operator app",
	"requestPurchase":      "operator app user",
	"getPurchase":          "operator app user",
	"getPurchaseProof":     "operator app user",
	"cancelPurchase":       "operator app user",
	"tryPayment":           "operator app user",
	"listPurchases":        "operator app user",
	"requestDraw":          "operator",
	"getDraw":              "operator app user viewer nobody",
	"getDrawProof":         "operator app user viewer nobody",
	"voidDraw":             "operator",
	"submitDrawRound":      "operator app user viewer nobody",
	"getDrawList":          "operator app user viewer nobody",
	"streamDraw":           "operator app user viewer nobody",
	"getDrawLabels":        "operator app user viewer nobody",
	"getJob":               "operator app user",
	"streamJob":            "operator app user",
	"listSweeps":           "operator",
	"runSweep":             "operator",
	"cancelCampaign":       "operator",
	"listRefunds":          "operator app",
	"getRefund":            "operator app user",
	"listPayments":         "operator",
	"retryPayment":         "operator",
	"resolvePayment":       "operator",
	"listWaitingRefunds":   "operator",
	"retryRefund":          "operator",
	"resolveRefund":        "operator app",
	"resolveRefunds":       "operator app",

	"listJobs":                "operator app user",
	"listCampaignPurchases":   "operator app",
	"findPurchases":           "operator app user",
	"listHolds":               "operator app user",
	"listUserHolds":           "operator app user",
	"createWebhookEndpoint":   "operator app",
	"listWebhookEndpoints":    "operator app",
	"getWebhookEndpoint":      "operator app",
	"patchWebhookEndpoint":    "operator app",
	"deleteWebhookEndpoint":   "operator app",
	"enableWebhookEndpoint":   "operator app",
	"disableWebhookEndpoint":  "operator app",
	"rotateWebhookSecret":     "operator app",
	"testWebhookEndpoint":     "operator app",
	"listWebhookDeliveries":   "operator app",
	"getWebhookDelivery":      "operator app",
	"replayWebhookDelivery":   "operator app",
	"replayWebhookDeliveries": "operator app",
	"getWebhookEvent":         "operator app",

	"listPaymentDifferences":   "operator",
	"explainPaymentDifference": "operator",
}

func TestEveryOperationIsForItsRolesOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	credentials := map[string]string{
		"nobody": "", "operator": s.Operator, "app": s.App, "user": fleet.TokenFor(t, "u", ""), "viewer": fleet.TokenFor(t, "v", "viewer"),
		"wrong key": "tp_000000000000_" + strings.Repeat("0", 64), "half a key": s.App[:20],
		"expired": fleet.TokenFor(t, "u", "", func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), "token of an app": fleet.TokenFor(t, "u", "app"),
	}
	wrong := []string{"nobody", "wrong key", "half a key", "expired", "token of an app"}
	document, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range document.Operations {
		if len(o.Roles) == 0 {
			continue
		}
		if _, known := mayCall[o.ID]; !known {
			t.Errorf("%s is new: say here who may call it", o.ID)
		}
		path := strings.NewReplacer("{campaign}", uuid.NewString(), "{purchase}", uuid.NewString(), "{job}", uuid.NewString(),
			"{endpoint}", uuid.NewString(), "{event}", uuid.NewString(), "{user}", "u", "{sweep}", "old-records", "{layer}", "1", "{column}", "1").Replace(o.Path)
		for role, credential := range credentials {
			methods := []string{o.Method}
			if o.Method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			for _, method := range methods {
				a := s.Do(0, credential, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
				want := "through"
				switch {
				case role == "nobody" && slices.Contains(strings.Fields(mayCall[o.ID]), role): // only what is published
				case slices.Contains(wrong, role):
					want = "401"
				case !slices.Contains(strings.Fields(mayCall[o.ID]), role):
					want = "403"
				}
				got := "through"
				if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden || a.Err != nil {
					got = fmt.Sprint(a.Status)
				}
				if got != want || a.Status >= 500 {
					t.Errorf("%s %s as %s: want %s, got %v", method, o.ID, role, want, a)
				}
				if got == "401" && method != http.MethodHead && (a.Refusal() != "unauthenticated" || a.Header.Get("WWW-Authenticate") == "" || credential != "" && fleet.Contains(a.Body, credential)) {
					t.Errorf("%s %s as %s: %v %s", method, o.ID, role, a, a.Body)
				}
			}
		}
	}
}

func TestAUserSeesAndDoesOnlyWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(3)
	path := "/v1/campaigns/" + id.String()
	mine, theirs := s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}), s.Buy(fleet.Order{Campaign: id, User: "otto", Wait: true})
	if mine.State != job.Succeeded || theirs.State != job.Succeeded {
		t.Fatal(mine, theirs)
	}
	mina, viewer := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "mina", "viewer")
	for what, c := range map[string]struct {
		path   string
		status int
	}{
		"her purchase":         {"/v1/purchases/" + mine.Result.PurchaseID.String(), http.StatusOK},
		"his purchase":         {"/v1/purchases/" + theirs.Result.PurchaseID.String(), http.StatusNotFound},
		"no purchase":          {"/v1/purchases/" + uuid.NewString(), http.StatusNotFound},
		"her purchases":        {"/v1/users/mina/purchases", http.StatusOK},
		"his purchases":        {"/v1/users/otto/purchases", http.StatusNotFound},
		"a job of the app's":   {"/v1/jobs/" + mine.ID.String(), http.StatusNotFound},
		"its event stream too": {"/v1/jobs/" + mine.ID.String() + "/events", http.StatusNotFound},
	} {
		if a := s.Do(0, mina, http.MethodGet, c.path, nil, nil); a.Status != c.status {
			t.Errorf("%s: want %d, got %v", what, c.status, a)
		}
	}
	board := s.Do(0, mina, http.MethodGet, path+"/positions", nil, nil)
	if n := strings.Count(string(board.Body), `"user_id":"mina"`); n != 1 || fleet.Contains(board.Body, "otto") {
		t.Errorf("her board: %s", board.Body)
	}
	if board = s.Do(0, viewer, http.MethodGet, path+"/positions", nil, nil); board.Status != http.StatusOK || fleet.Contains(board.Body, "user_id") {
		t.Errorf("a viewer's board: %s", board.Body)
	}
	buy := func(user, method string) fleet.Answer {
		return s.Do(0, mina, http.MethodPost, path+"/purchases", map[string]string{"Idempotency-Key": uuid.NewString()}, map[string]any{
			"user_id": user, "selection": map[string]int{"quantity": 1}, "payment": map[string]string{"method": method}})
	}
	if a := buy("otto", "external"); a.Status != http.StatusForbidden {
		t.Errorf("in his name: %v", a)
	}
	if a := buy("mina", "external"); a.Status != http.StatusForbidden || !fleet.Contains(a.Body, "external") {
		t.Errorf("paid, she says: %v", a)
	}
	var sold int
	if err := s.DB.QueryRow(t.Context(), `SELECT positions_sold FROM campaigns WHERE id = $1`, id).Scan(&sold); err != nil || sold != 2 {
		t.Errorf("%d positions are sold, %v", sold, err)
	}
}
