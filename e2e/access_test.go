package e2e

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
	"triprize/internal/store/job"
)

// A system that trusts tokens.
const (
	issuer      = "https://login.example"
	audience    = "triprize"
	tokenSecret = "a secret of the login service, not of ours"
)

var trusting = options{env: []string{"TRIPRIZE_TOKENS_ISSUER=" + issuer, "TRIPRIZE_TOKENS_AUDIENCE=" + audience, "TRIPRIZE_TOKENS_HS256_SECRET=" + tokenSecret}}

// tokenFor signs a token of a user; role may be empty.
func tokenFor(t *testing.T, user, role string, change ...func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": issuer, "aud": audience, "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	if role != "" {
		claims["role"] = role
	}
	for _, c := range change {
		c(claims)
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(tokenSecret))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

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
	"cancelPurchase":       "operator app user",
	"listPurchases":        "operator app user",
	"requestDraw":          "operator",
	"getDraw":              "operator app user viewer",
	"getJob":               "operator app user",
	"streamJob":            "operator app user",
	"listSweeps":           "operator",
	"runSweep":             "operator",
}

func TestEveryOperationIsForItsRolesOnly(t *testing.T) {
	t.Parallel()
	s := start(t, trusting)
	credentials := map[string]string{
		"nobody": "", "operator": s.operator, "app": s.app, "user": tokenFor(t, "u", ""), "viewer": tokenFor(t, "v", "viewer"),
	}
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
			"{user}", "u", "{sweep}", "old-records", "{layer}", "1", "{column}", "1").Replace(o.Path)
		for role, credential := range credentials {
			methods := []string{o.Method}
			if o.Method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			for _, method := range methods {
				a := s.do(0, credential, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
				want := "through"
				switch {
				case role == "nobody":
					want = "401"
				case !slices.Contains(strings.Fields(mayCall[o.ID]), role):
					want = "403"
				}
				got := "through"
				if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.err != nil {
					got = fmt.Sprint(a.status)
				}
				if got != want || a.status >= 500 {
					t.Errorf("%s %s as %s: want %s, got %v", method, o.ID, role, want, a)
				}
			}
		}
	}
}

func TestAUserSeesAndDoesOnlyWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	s := start(t, trusting)
	id := s.campaign(3)
	path := "/v1/campaigns/" + id.String()
	mine, theirs := s.buy(order{campaign: id, user: "mina", wait: 10}), s.buy(order{campaign: id, user: "otto", wait: 10})
	if mine.State != job.Succeeded || theirs.State != job.Succeeded {
		t.Fatal(mine, theirs)
	}
	mina, viewer := tokenFor(t, "mina", ""), tokenFor(t, "mina", "viewer")
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
		if a := s.do(0, mina, http.MethodGet, c.path, nil, nil); a.status != c.status {
			t.Errorf("%s: want %d, got %v", what, c.status, a)
		}
	}
	board := s.do(0, mina, http.MethodGet, path+"/positions", nil, nil)
	if n := strings.Count(string(board.body), `"user_id":"mina"`); n != 1 || contains(board.body, "otto") {
		t.Errorf("her board: %s", board.body)
	}
	if board = s.do(0, viewer, http.MethodGet, path+"/positions", nil, nil); board.status != http.StatusOK || contains(board.body, "user_id") {
		t.Errorf("a viewer's board: %s", board.body)
	}
	buy := func(user, method string) answer {
		return s.do(0, mina, http.MethodPost, path+"/purchases", map[string]string{"Idempotency-Key": uuid.NewString()}, map[string]any{
			"user_id": user, "selection": map[string]int{"quantity": 1}, "payment": map[string]string{"method": method}})
	}
	if a := buy("otto", "external"); a.status != http.StatusForbidden {
		t.Errorf("in his name: %v", a)
	}
	if a := buy("mina", "external"); a.status != http.StatusForbidden || !contains(a.body, "external") {
		t.Errorf("paid, she says: %v", a)
	}
	var sold int
	if err := s.db.QueryRow(t.Context(), `SELECT positions_sold FROM campaigns WHERE id = $1`, id).Scan(&sold); err != nil || sold != 2 {
		t.Errorf("%d positions are sold, %v", sold, err)
	}
}

func TestTokensThatAreNotGoodAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, trusting)
	for what, token := range map[string]string{
		"expired":                tokenFor(t, "u", "", func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }),
		"without an end":         tokenFor(t, "u", "", func(c jwt.MapClaims) { delete(c, "exp") }),
		"of another issuer":      tokenFor(t, "u", "", func(c jwt.MapClaims) { c["iss"] = "https://evil.example" }),
		"for somebody else":      tokenFor(t, "u", "", func(c jwt.MapClaims) { c["aud"] = "another" }),
		"without a subject":      tokenFor(t, "", ""),
		"that says operator":     tokenFor(t, "u", "operator"),
		"that says app":          tokenFor(t, "u", "app"),
		"signed by nobody":       unsigned(t),
		"with a changed payload": tampered(tokenFor(t, "u", "viewer")),
	} {
		a := s.do(0, token, http.MethodGet, "/v1/campaigns", nil, nil)
		if a.status != http.StatusUnauthorized || a.code() != "unauthenticated" || contains(a.body, token) {
			t.Errorf("a token %s: %v %s", what, a, a.body)
		}
	}
	if a := s.do(0, tokenFor(t, "u", ""), http.MethodGet, "/v1/campaigns", nil, nil); a.status != http.StatusOK {
		t.Errorf("a good token: %v", a)
	}
}

func unsigned(t *testing.T) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": issuer, "aud": audience, "sub": "u",
		"exp": time.Now().Add(time.Hour).Unix()}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// tampered changes one character of a token's payload.
func tampered(token string) string {
	parts := strings.Split(token, ".")
	payload := []byte(parts[1])
	payload[10] ^= 1
	parts[1] = string(payload)
	return strings.Join(parts, ".")
}
