package httpapi_test

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

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// basic is HTTP Basic authentication with a key as the password.
func basic(password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("operator:"+password))
}

// withAuthorization asks with an Authorization header as it is.
func withAuthorization(s *fleet.System, method, path, authorization string, header map[string]string) fleet.Answer {
	all := map[string]string{"Authorization": authorization}
	maps.Copy(all, header)
	return s.Do(0, "", method, path, all, nil)
}

// signedBy signs the claims of a user with something else.
func signedBy(t *testing.T, secret string, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": fleet.Issuer, "aud": fleet.Audience, "sub": "mina", "exp": 4102444800})
	maps.Copy(token.Header, header)
	text, err := token.SignedString([]byte(secret))
	servers.NoError(t, err)
	return text
}

func TestOnlyAWholeCredentialOpensAndNoneIsEverLogged(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Env: append([]string{"TRIPRIZE_LOG_LEVEL=debug", "TRIPRIZE_LIMITS_ADDRESS_RATE=0"}, fleet.Trusting.Env...), WorkerEnv: []string{"TRIPRIZE_LOG_LEVEL=debug"}})
	mina := fleet.TokenFor(t, "mina", "")
	_, secret, _ := strings.Cut(strings.TrimPrefix(s.Operator, "tp_"), "_")
	prefix := strings.TrimSuffix(s.Operator, secret)
	_, another, _ := strings.Cut(strings.TrimPrefix(s.App, "tp_"), "_")
	parts := strings.Split(mina, ".")
	wrong := map[string]string{
		"another's secret": "Bearer " + prefix + another, "half a secret": "Bearer " + s.Operator[:len(s.Operator)-1], "more than a secret": "Bearer " + s.Operator + "0", "only a prefix": "Bearer " + prefix,
		"only a secret": "Bearer " + secret, "in capitals": "Bearer " + strings.ToUpper(s.Operator), "a space inside": "Bearer " + prefix + " " + secret, "two": "Bearer " + s.Operator + ", Bearer " + s.App,
		"SQL": "Bearer tp_' OR '1'='1_" + secret, "a wildcard": "Bearer tp_%_" + secret, "a key as a token": "Bearer " + strings.ReplaceAll(s.Operator, "_", "."), "no scheme": s.Operator, "no credential": "Bearer", "nothing": " ",
		"another scheme": "Token " + s.Operator, "Digest": `Digest username="a", response="` + secret + `"`, "Basic with a key": basic(s.Operator), "Basic with a token": basic(mina), "a quoted key": `Bearer "` + s.Operator + `"`,
		"a token without its signature": "Bearer " + parts[0] + "." + parts[1] + ".", "a token's parts moved": "Bearer " + parts[1] + "." + parts[0] + "." + parts[2], "a part too many": "Bearer " + mina + ".e30",
		"a token signed with a key": "Bearer " + signedBy(t, s.Operator, nil), "signed with nothing": "Bearer " + signedBy(t, "", nil), "a foreign kid": "Bearer " + signedBy(t, "x", map[string]any{"kid": "../../dev/null"}),
		"a key inside": "Bearer " + signedBy(t, "x", map[string]any{"jwk": map[string]string{"kty": "oct", "k": "eA"}}), "a key elsewhere": "Bearer " + signedBy(t, "x", map[string]any{"jku": "http://evil.example/keys", "x5u": "http://evil.example/"}),
	}
	zeros := strings.Repeat("0", 64)
	for _, text := range []string{"Bearer tp_" + strings.Repeat("\xff", 12) + "_" + zeros, "Bearer tp_000000000000_" + strings.Repeat("\xff", 64), "Bearer tp_" + strings.Repeat("\xc3\x28", 6) + "_" + zeros,
		"Bearer \xff.\xff.\xff", "Bearer " + mina[:20] + "\xff" + mina[20:], "Basic \xff", basic("tp_" + strings.Repeat("\x00", 12) + "_" + zeros), basic("tp_" + strings.Repeat("\xff", 12) + "_" + zeros)} {
		wrong[fmt.Sprintf("%q, which Postgres refuses", text)] = text
	}
	for what, authorization := range wrong {
		for _, path := range []string{"/v1/campaigns", "/v1/users/mina/purchases"} {
			a := withAuthorization(s, http.MethodGet, path, authorization, nil)
			if harmless(t, what, a); a.Status != http.StatusUnauthorized || a.Refusal() != "unauthenticated" {
				t.Errorf("%s: %v %s", what, a, a.Body)
			}
		}
	}
	for what, authorization := range map[string]string{"a key": "bearer  " + s.Operator, "a token": "BEARER " + mina} {
		wantAnswer(t, what, withAuthorization(s, http.MethodGet, "/v1/campaigns", authorization, nil), 200)
	}
	wantAnswer(t, "a key in the query", s.Do(0, "", http.MethodGet, "/v1/campaigns?access_token="+s.Operator+"&api_key="+url.QueryEscape(s.Operator), map[string]string{"Cookie": "Authorization=" + s.Operator}, nil), 401)
	for what, c := range map[string]struct {
		authorization string
		status        int
	}{
		"the operator": {basic(s.Operator), 200}, "an app": {basic(s.App), 403}, "a token": {basic(mina), 401}, "Bearer": {"Bearer " + s.Operator, 401}, "nobody": {"", 401}, "not Base64": {"Basic " + s.Operator, 401}, "no colon": {"Basic " + base64.StdEncoding.EncodeToString([]byte(s.Operator)), 401},
	} {
		for _, path := range []string{"/asynqmon", "/asynqmon/api/queues"} {
			wantAnswer(t, fmt.Sprintf("%s at %s", what, path), withAuthorization(s, http.MethodGet, path, c.authorization, nil), c.status)
		}
	}
	wire(s, "a broken request", "GET  HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+s.Operator+"\r\n\r\n")
	wire(s, "a broken length", "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+s.App+"\r\nContent-Length: x\r\n\r\n")
	s.Buy(fleet.Order{Campaign: s.Campaign(4), User: "mina", Wait: true})

	secrets := map[string]string{"the operator's key": secret, "the app's key": another, "the draw key": s.Settings.Draw.SecretKey, "the tokens' secret": fleet.TokenSecret, "a token": parts[2], "Basic": basic(s.Operator)[6:]}
	for what, authorization := range wrong {
		if fields := strings.Fields(authorization); len(fields) == 2 && len(fields[1]) > 20 {
			secrets[what] = fields[1]
		}
	}
	if u, err := url.Parse(s.Settings.Postgres.URL); err == nil {
		if password, ok := u.User.Password(); ok && len(password) > 8 {
			secrets["the password of Postgres"] = password
		}
	}
	files, err := filepath.Glob(filepath.Join(s.LogDir, "*.log"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		var data []byte
		servers.Eventually(t, file+" has lines", func() bool { data, _ = os.ReadFile(file); return len(data) > 0 }) // nobody has waited for the scheduler
		for _, what := range slices.Sorted(maps.Keys(secrets)) {
			if fleet.Contains(data, secrets[what]) {
				t.Errorf("%s is in %s", what, filepath.Base(file))
			}
		}
	}
}
