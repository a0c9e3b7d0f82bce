package e2e

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// basic is HTTP Basic authentication with a key as the password.
func basic(password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("operator:"+password))
}

// withAuthorization asks with an Authorization header as it is.
func (s *system) withAuthorization(method, path, authorization string, header map[string]string) answer {
	all := map[string]string{"Authorization": authorization}
	maps.Copy(all, header)
	return s.do(0, "", method, path, all, nil)
}

// signedBy signs the claims of a user with something else.
func signedBy(t *testing.T, secret string, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": issuer, "aud": audience, "sub": "mina", "exp": 4102444800})
	maps.Copy(token.Header, header)
	text, err := token.SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOnlyAWholeCredentialOpensAndNoneIsEverLogged(t *testing.T) {
	t.Parallel()
	s := start(t, options{env: append([]string{"TRIPRIZE_LOG_LEVEL=debug"}, trusting.env...), workerEnv: []string{"TRIPRIZE_LOG_LEVEL=debug"}})
	mina := tokenFor(t, "mina", "")
	_, secret, _ := strings.Cut(strings.TrimPrefix(s.operator, "tp_"), "_")
	prefix := strings.TrimSuffix(s.operator, secret)
	_, another, _ := strings.Cut(strings.TrimPrefix(s.app, "tp_"), "_")
	parts := strings.Split(mina, ".")
	wrong := map[string]string{
		"another's secret": "Bearer " + prefix + another, "half a secret": "Bearer " + s.operator[:len(s.operator)-1], "more than a secret": "Bearer " + s.operator + "0", "only a prefix": "Bearer " + prefix,
		"only a secret": "Bearer " + secret, "in capitals": "Bearer " + strings.ToUpper(s.operator), "a space inside": "Bearer " + prefix + " " + secret, "two": "Bearer " + s.operator + ", Bearer " + s.app,
		"SQL": "Bearer tp_' OR '1'='1_" + secret, "a wildcard": "Bearer tp_%_" + secret, "a key as a token": "Bearer " + strings.ReplaceAll(s.operator, "_", "."), "no scheme": s.operator, "no credential": "Bearer", "nothing": " ",
		"another scheme": "Token " + s.operator, "Digest": `Digest username="a", response="` + secret + `"`, "Basic with a key": basic(s.operator), "Basic with a token": basic(mina), "a quoted key": `Bearer "` + s.operator + `"`,
		"a token without its signature": "Bearer " + parts[0] + "." + parts[1] + ".", "a token's parts moved": "Bearer " + parts[1] + "." + parts[0] + "." + parts[2], "a part too many": "Bearer " + mina + ".e30",
		"a token signed with a key": "Bearer " + signedBy(t, s.operator, nil), "signed with nothing": "Bearer " + signedBy(t, "", nil), "a foreign kid": "Bearer " + signedBy(t, "x", map[string]any{"kid": "../../dev/null"}),
		"a key inside": "Bearer " + signedBy(t, "x", map[string]any{"jwk": map[string]string{"kty": "oct", "k": "eA"}}), "a key elsewhere": "Bearer " + signedBy(t, "x", map[string]any{"jku": "http://evil.example/keys", "x5u": "http://evil.example/"}),
	}
	for what, authorization := range wrong {
		for _, path := range []string{"/v1/campaigns", "/v1/users/mina/purchases"} {
			a := s.withAuthorization(http.MethodGet, path, authorization, nil)
			if harmless(t, what, a); a.status != http.StatusUnauthorized || a.code() != "unauthenticated" {
				t.Errorf("%s: %v %s", what, a, a.body)
			}
		}
	}
	for what, authorization := range map[string]string{"a key": "bearer  " + s.operator, "a token": "BEARER " + mina} {
		if a := s.withAuthorization(http.MethodGet, "/v1/campaigns", authorization, nil); a.status != http.StatusOK {
			t.Errorf("%s: %v", what, a)
		}
	}
	if a := s.do(0, "", http.MethodGet, "/v1/campaigns?access_token="+s.operator+"&api_key="+url.QueryEscape(s.operator), map[string]string{"Cookie": "Authorization=" + s.operator}, nil); a.status != http.StatusUnauthorized {
		t.Errorf("a key in the query: %v", a)
	}
	for what, c := range map[string]struct {
		authorization string
		status        int
	}{
		"the operator": {basic(s.operator), 200}, "an app": {basic(s.app), 403}, "a token": {basic(mina), 401}, "Bearer": {"Bearer " + s.operator, 401}, "nobody": {"", 401}, "not Base64": {"Basic " + s.operator, 401}, "no colon": {"Basic " + base64.StdEncoding.EncodeToString([]byte(s.operator)), 401},
	} {
		for _, path := range []string{"/asynqmon", "/asynqmon/api/queues"} {
			if a := s.withAuthorization(http.MethodGet, path, c.authorization, nil); a.status != c.status {
				t.Errorf("%s at %s: %v", what, path, a)
			}
		}
	}
	s.wire("a broken request", "GET  HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+s.operator+"\r\n\r\n")
	s.wire("a broken length", "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+s.app+"\r\nContent-Length: x\r\n\r\n")
	s.buy(order{campaign: s.campaign(4), user: "mina", wait: 20})

	secrets := map[string]string{"the operator's key": secret, "the app's key": another, "the draw key": s.settings.Draw.SecretKey, "the tokens' secret": tokenSecret, "a token": parts[2], "Basic": basic(s.operator)[6:]}
	for what, authorization := range wrong {
		if fields := strings.Fields(authorization); len(fields) == 2 && len(fields[1]) > 20 {
			secrets[what] = fields[1]
		}
	}
	if u, err := url.Parse(s.settings.Postgres.URL); err == nil {
		if password, ok := u.User.Password(); ok && len(password) > 8 {
			secrets["the password of Postgres"] = password
		}
	}
	files, err := filepath.Glob(filepath.Join(s.LogDir, "*.log"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			t.Errorf("%s is empty: %v", file, err)
		}
		for _, what := range slices.Sorted(maps.Keys(secrets)) {
			if contains(data, secrets[what]) {
				t.Errorf("%s is in %s", what, filepath.Base(file))
			}
		}
	}
}

func TestAKeyOfOneClientIsNothingToAnother(t *testing.T) {
	t.Parallel()
	s := start(t, options{env: trusting.env, schedulers: -1})
	path := "/v1/campaigns/" + s.campaign(20).String() + "/purchases"
	clients := map[string]string{"shop": s.app, "another shop": s.newKey("another-shop"), "a shop with a like name": s.newKey("shop-"), "the operator": s.operator,
		"the same shop's other key": s.newKey("shop")}
	buy := func(credential string) answer {
		return s.do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": "k", "Prefer": "wait=20"}, rawJSON(goodPurchase))
	}
	first := make(map[string]answer)
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		first[name] = buy(clients[name])
		if a := first[name]; a.State != job.Succeeded {
			t.Fatalf("%s: %v %s", name, a, a.body)
		}
	}
	jobs := make(map[uuid.UUID][]string)
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		again := buy(clients[name])
		if again.ID != first[name].ID || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s again: %v, first %v", name, again, first[name])
		}
		jobs[again.ID] = append(jobs[again.ID], name)
		for other, credential := range clients {
			own := other == name || strings.Contains(name+other, "same shop") && (name == "shop" || other == "shop") || other == "the operator"
			if a := s.do(0, credential, http.MethodGet, "/v1/jobs/"+again.ID.String(), nil, nil); (a.status == http.StatusOK) != own {
				t.Errorf("%s reads the job of %s: %v", other, name, a)
			}
		}
	}
	if len(jobs) != 4 || len(jobs[first["shop"].ID]) != 2 {
		t.Errorf("one key of four clients, one of which has two credentials: %v", jobs)
	}
	// A user is a client of its own, under whatever credential it comes.
	create := func(credential string) answer {
		return s.do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": "k"}, rawJSON(strings.Replace(goodPurchase, `"a"`, `"mina"`, 1)))
	}
	if a := create(tokenFor(t, "mina", "")); a.status != http.StatusForbidden { // external, which users cannot say
		t.Errorf("mina: %v %s", a, a.body)
	}
	if a := create(s.app); a.status != http.StatusUnprocessableEntity {
		t.Errorf("the shop's key for another request: %v", a)
	}
}

func TestAFormOfAnotherSiteDoesNothingToTheDashboard(t *testing.T) {
	t.Parallel()
	s := start(t, options{schedulers: -1, env: []string{"TRIPRIZE_API_ASYNQMON_READ_ONLY=false"}})
	s.buy(order{campaign: s.campaign(4), user: "a", wait: 20}) // there is a queue now
	queues, err := s.rdb.SMembers(t.Context(), "asynq:queues").Result()
	if err != nil || len(queues) == 0 {
		t.Fatal(queues, err)
	}
	queue := ""
	for _, q := range queues {
		if strings.Contains(q, s.settings.Redis.Namespace) {
			queue = q
		}
	}
	pause := "/asynqmon/api/queues/" + url.PathEscape(queue) + ":pause"
	paused := func() int64 {
		n, err := s.rdb.Exists(t.Context(), fmt.Sprintf("asynq:{%s}:paused", queue)).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for what, header := range map[string]map[string]string{
		"another site": {"Sec-Fetch-Site": "cross-site"}, "a site beside": {"Sec-Fetch-Site": "same-site"}, "an old browser": {"Origin": "http://evil.example"}, "a sandbox": {"Origin": "null"},
		"a like name": {"Origin": s.urls[0] + ".evil.example"}, "another port": {"Origin": "http://127.0.0.1:1"}, "both, at odds": {"Sec-Fetch-Site": "cross-site", "Origin": s.urls[0]},
	} {
		for _, media := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"} {
			header["Content-Type"] = media
			if a := s.withAuthorization(http.MethodPost, pause, basic(s.operator), header); a.status != http.StatusForbidden || paused() != 0 {
				t.Errorf("%s with %s: %v %s", what, media, a, a.body)
			}
		}
	}
	if a := s.withAuthorization(http.MethodPost, pause, basic(s.app), map[string]string{"Sec-Fetch-Site": "same-origin"}); a.status != http.StatusForbidden || paused() != 0 {
		t.Errorf("an app: %v", a)
	}
	if a := s.withAuthorization(http.MethodPost, pause, basic(s.operator), map[string]string{"Sec-Fetch-Site": "same-origin"}); a.status != http.StatusNoContent || paused() != 1 {
		t.Errorf("the dashboard itself: %v %s, paused %d", a, a.body, paused())
	}
}
