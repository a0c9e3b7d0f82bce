package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"triprize.example/client/webhook"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	other  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	bought = `{"type":"purchase.completed","timestamp":"2026-01-01T00:00:00Z","data":{"user_id":"ada","amount":100}}`
)

func sign(t *testing.T, secret, id string, at int64, body string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%d.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func headers(at int64, signatures ...string) http.Header {
	h := make(http.Header)
	h.Set("webhook-id", "msg_1")
	h.Set("webhook-timestamp", strconv.FormatInt(at, 10))
	h.Set("webhook-signature", strings.Join(signatures, " "))
	return h
}

func verifier(t *testing.T, secrets ...string) *webhook.Verifier {
	t.Helper()
	v, err := webhook.New(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The vector that the libraries of Standard Webhooks are tested with.
func TestTheVectorOfTheStandardIsVerified(t *testing.T) {
	t.Parallel()
	h := make(http.Header)
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	v := verifier(t, secret)
	v.Tolerate(200 * 365 * 24 * time.Hour)
	// It has no type, so it is no event; but its signature is right, which is looked at first.
	if _, err := v.Verify(h, []byte(`{"test": 2432232314}`)); err == nil || errors.Is(err, webhook.ErrUnverified) {
		t.Error(err)
	}
	if _, err := v.Verify(h, []byte(`{"test": 2432232315}`)); !errors.Is(err, webhook.ErrUnverified) {
		t.Error(err)
	}
}

func TestAnEventIsVerifiedAndTyped(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	e, err := verifier(t, secret).Verify(headers(now, sign(t, secret, "msg_1", now, bought)), []byte(bought))
	if err != nil || e.ID != "msg_1" || e.Type != "purchase.completed" || e.Timestamp.Year() != 2026 {
		t.Fatalf("%+v, %v", e, err)
	}
	if p, err := e.Purchase(); err != nil || p.UserID != "ada" || p.Amount != 100 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := e.Hold(); err == nil {
		t.Error("a purchase is a hold")
	}
}

func TestAWebhookIsVerifiedByAnySecretThatIsKnownAndAllElseIsRefused(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	good, byOther := sign(t, secret, "msg_1", now, bought), sign(t, other, "msg_1", now, bought)
	changed := func(name, value string) http.Header {
		h := headers(now, good)
		h.Set(name, value)
		return h
	}
	for name, c := range map[string]struct {
		header http.Header
		body   string
		known  []string
		good   bool
	}{
		"rotated, the old one is known": {headers(now, good, byOther), bought, []string{secret}, true},
		"rotated, the new one is known": {headers(now, good, byOther), bought, []string{other}, true},
		"rotated, both are known":       {headers(now, byOther), bought, []string{secret, other}, true},
		"another body":                  {headers(now, good), strings.Replace(bought, "completed", "cancelled", 1), []string{secret}, false},
		"another id":                    {changed("webhook-id", "msg_2"), bought, []string{secret}, false},
		"another time":                  {headers(now+1, good), bought, []string{secret}, false},
		"another secret":                {headers(now, byOther), bought, []string{secret}, false},
		"no signature":                  {changed("webhook-signature", ""), bought, []string{secret}, false},
		"of another version":            {headers(now, "v2,"+strings.TrimPrefix(good, "v1,")), bought, []string{secret}, false},
		"not base64":                    {headers(now, "v1,%%%"), bought, []string{secret}, false},
		"empty":                         {headers(now, "v1,"), bought, []string{secret}, false},
		"a part":                        {headers(now, good[:20]), bought, []string{secret}, false},
		"too old":                       {headers(now-400, sign(t, secret, "msg_1", now-400, bought)), bought, []string{secret}, false},
		"of the future":                 {headers(now+4000, sign(t, secret, "msg_1", now+4000, bought)), bought, []string{secret}, false},
	} {
		e, err := verifier(t, c.known...).Verify(c.header, []byte(c.body))
		if c.good != (err == nil) || !c.good && (!errors.Is(err, webhook.ErrUnverified) || e.Type != "") {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestASecretThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]string{{}, {""}, {"whsec_"}, {"whsec_%%"}, {secret, "x"}} {
		if _, err := webhook.New(secrets...); err == nil || strings.Contains(err.Error(), "%%") {
			t.Errorf("%q: %v", secrets, err)
		}
	}
}

func TestTheHandlerTellsWhetherAnEventIsHandledAndEchoesASignedChallenge(t *testing.T) {
	t.Parallel()
	const challenge = `{"type":"webhook-endpoint.verification","timestamp":"2026-07-01T09:00:00Z","data":{"id":"0199","challenge":"echo me"}}`
	now := time.Now().Unix()
	good, asked := headers(now, sign(t, secret, "msg_1", now, bought)), headers(now, sign(t, secret, "msg_1", now, challenge))
	for name, c := range map[string]struct {
		method string
		header http.Header
		body   string
		fails  bool
		want   int
		events int
	}{
		"an event":           {http.MethodPost, good, bought, false, http.StatusNoContent, 1},
		"one that fails":     {http.MethodPost, good, bought, true, http.StatusInternalServerError, 1},
		"not verified":       {http.MethodPost, good, bought + " ", false, http.StatusUnauthorized, 0},
		"not an event":       {http.MethodPost, headers(now, sign(t, secret, "msg_1", now, "[]")), "[]", false, http.StatusBadRequest, 0},
		"longer than it may": {http.MethodPost, good, strings.Repeat(" ", 1<<20), false, http.StatusBadRequest, 0},
		"a GET":              {http.MethodGet, good, "", false, http.StatusMethodNotAllowed, 0},
		"a challenge":        {http.MethodPost, asked, challenge, true, http.StatusOK, 0},
		"an unsigned one":    {http.MethodPost, asked, challenge + " ", true, http.StatusUnauthorized, 0},
	} {
		events := 0
		h := verifier(t, secret).Handler(func(context.Context, webhook.Event) error {
			events++
			if c.fails {
				return errors.New("the database is away")
			}
			return nil
		})
		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, "/", strings.NewReader(c.body))
		r.Header = c.header
		h.ServeHTTP(w, r)
		echoed := w.Body.String() == "echo me"
		if w.Code != c.want || events != c.events || strings.Contains(w.Body.String(), "database") || echoed != (c.want == http.StatusOK) {
			t.Errorf("%s: %d %s, %d events", name, w.Code, w.Body, events)
		}
	}
}

func ExampleVerifier_Handler() {
	v, err := webhook.New(secret)
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(v.Handler(func(_ context.Context, e webhook.Event) error {
		purchase, err := e.Purchase()
		fmt.Println(e.Type, purchase.UserID)
		return err
	}))
	defer server.Close()
	request, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader(bought))
	if err != nil {
		panic(err)
	}
	now := time.Now().Unix()
	request.Header = headers(now, sign(new(testing.T), secret, "msg_1", now, bought))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	_ = response.Body.Close()
	fmt.Println(response.StatusCode)
	// Output:
	// purchase.completed ada
	// 204
}
