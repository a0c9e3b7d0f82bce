package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// limited is a user whose token is used up within a second.
var limited = append([]string{"TRIPRIZE_LIMITS_USER_RATE=1", "TRIPRIZE_LIMITS_USER_BURST=2", "TRIPRIZE_LIMITS_CLIENT_RATE=1", "TRIPRIZE_LIMITS_CLIENT_BURST=2"}, fleet.Trusting.Env...)

func TestRequestsThatFailAreChargedLikeGoodOnes(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	s.With(limited...)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	for name, c := range map[string]struct {
		path, body, media string
		key               string
		status            int
	}{
		"no JSON":           {path: path, body: "{", status: 400},
		"an unknown field":  {path: path, body: `{"x":1}`, status: 400},
		"no key":            {path: path, body: goodPurchase, key: "-", status: 400},
		"not for users":     {path: "/v1/campaigns/" + id.String() + "/publish", status: 403},
		"another user":      {path: path, body: goodPurchase, status: 403},
		"no such campaign":  {path: "/v1/campaigns/" + uuid.NewString() + "/purchases", body: strings.Replace(goodPurchase, `"a"`, `"%s"`, 1), status: 404},
		"no such path":      {path: "/v1/campaigns/x/purchases", body: goodPurchase, status: 404},
		"a long body":       {path: path, body: strings.Repeat(" ", 100_000), status: 413},
		"another media":     {path: path, body: goodPurchase, media: "text/plain", status: 415},
		"no such campaign ": {path: "/v1/campaigns/" + uuid.NewString() + "/holds", body: `{"user_id":"%s","quantity":1}`, status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who := s.User(strings.ReplaceAll(name, " ", "-"))
			mina := fleet.TokenFor(t, who, "")
			body := c.body
			if strings.Contains(body, "%s") {
				body = strings.Replace(fmt.Sprintf(body, who), "external", "wallet", 1)
			}
			statuses := make(map[int]int)
			for _, a := range fleet.AtOnce(20, func(int) fleet.Answer { return rawAs(s, mina, http.MethodPost, c.path, body, c.key, c.media) }) {
				statuses[a.Status]++
				if a.Status == c.status && !strings.HasPrefix(a.Header.Get("RateLimit"), `"user";`) {
					t.Errorf("it was not charged: %v", a.Header)
				}
			}
			if statuses[c.status] < 2 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
				t.Errorf("20 requests were answered with %v", statuses)
			}
		})
	}
}

// A body that is only announced shows what is looked at before it: all the other
// steps, in this order.
func TestABodyIsTheLastThingThatIsLookedAt(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With(limited...)
	mina := fleet.TokenFor(t, s.User("mina"), "")
	post := func(credential, key, path string) fleet.Answer {
		if credential != "" {
			credential = "Authorization: Bearer " + credential + "\r\n"
		}
		answers := wire(s, path, "POST "+path+" HTTP/1.1\r\nHost: api\r\n"+credential+key+"Content-Type: application/json\r\nContent-Length: 9000000\r\n\r\n")
		if len(answers) != 1 || answers[0].Header.Get("Connection") != "close" {
			t.Fatalf("%s: %v", path, answers)
		}
		return answers[0]
	}
	const key = "Idempotency-Key: k\r\n"
	purchases := "/v1/campaigns/" + uuid.NewString() + "/purchases"
	for _, c := range []struct {
		what, credential, key, path string
		status                      int
	}{
		{"nobody", "", key, purchases, 401},
		{"a user, at a wrong path", mina, key, "/v1/campaigns/x/purchases", 404},
		{"the user again, without a key", mina, "", purchases, 400},
		{"the user a third time", mina, key, purchases, 429},
		{"an operator", s.Operator, key, "/v1/campaigns", 413},
		{"an app at an operator's path", s.App, key, "/v1/campaigns", 403},
		{"an app", s.App, key, purchases, 413},
		{"an app a third time", s.App, key, purchases, 429},
	} {
		a := post(c.credential, c.key, c.path)
		for tries := 0; c.status == 429 && a.Status == 413 && tries < 2000; tries++ { // a second is over since the last, and it may pass
			a = post(c.credential, c.key, c.path)
		}
		wantAnswer(t, c.what, a, c.status)
	}
}

// What a proxy takes for one request must be one here, also when its body was refused.
func TestWhatIsLeftOfABodyIsNeverTheNextRequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	const inner = "GET /v1/inner HTTP/1.1\r\nHost: api\r\n\r\n"
	for what, head := range map[string]string{
		"nobody": "POST /v1/campaigns HTTP/1.1\r\n", "an app": "POST /v1/campaigns HTTP/1.1\r\nAuthorization: Bearer " + s.App + "\r\n", "no such path": "POST /v2 HTTP/1.1\r\n", "no such method": "PUT /healthz HTTP/1.1\r\n",
		"not JSON": "POST /v1/campaigns HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nAuthorization: Bearer " + s.Operator + "\r\n",
		"no body":  "POST /v1/campaigns/" + uuid.NewString() + "/pause HTTP/1.1\r\nIdempotency-Key: k\r\nAuthorization: Bearer " + s.Operator + "\r\n",
		"a GET":    "GET /v1/campaigns HTTP/1.1\r\nAuthorization: Bearer " + s.Operator + "\r\n", "a HEAD": "HEAD /healthz HTTP/1.1\r\n", "the dashboard": "POST /asynqmon/api HTTP/1.1\r\nAuthorization: " + basic(s.Operator) + "\r\n",
		"a delete": "DELETE /v1/holds/" + uuid.NewString() + " HTTP/1.1\r\nAuthorization: Bearer " + s.Operator + "\r\n", "expecting": "POST /v1/campaigns HTTP/1.1\r\nExpect: 100-continue\r\n",
		"a form": "POST /v1/campaigns HTTP/1.1\r\nAuthorization: Bearer " + s.Operator + "\r\nContent-Type: multipart/form-data; boundary=x\r\n",
	} {
		for _, size := range []int{1, 100, 8191, 8192, 8193, 8300, 20_000, 70_000, 300_000, 1 << 20, 1<<20 + 1, 3 << 20} {
			body := (strings.Repeat(inner, size/len(inner)+1))[:size]
			answers := wire(s, what, fmt.Sprintf("%sHost: api\r\nContent-Length: %d\r\n\r\n%sGET /healthz HTTP/1.1\r\nHost: api\r\n\r\n", head, size, body))
			closed := len(answers) == 1 && answers[0].Header.Get("Connection") == "close"
			next := len(answers) == 2 && answers[1].Status == http.StatusOK && answers[0].Header.Get("Connection") != "close"
			lost := len(answers) == 0 && size > 64<<10 // closed before all of it was sent, and the answer lost
			if !closed && !next && !lost {
				t.Errorf("%s with %d bytes: %v", what, size, answers)
			}
			if size <= 8192 && !strings.HasPrefix(head, "GET") && !strings.HasPrefix(head, "HEAD") && !next {
				t.Errorf("%s with %d bytes loses its connection: %v", what, size, answers)
			}
		}
	}
	// Requests that follow each other on a connection stand each for itself.
	answers := wire(s, "two requests", "GET /v1/campaigns HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+s.Operator+"\r\n\r\nGET /v1/campaigns HTTP/1.1\r\nHost: api\r\n\r\n")
	if len(answers) != 2 || answers[0].Status != http.StatusOK || answers[1].Status != http.StatusUnauthorized {
		t.Errorf("two requests: %v", answers)
	}
}

// Its client was told that the request did not arrive, or is gone.
func TestABodyThatStopsShortHasNoEffect(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(4)
	for _, sent := range []int{len(goodPurchase), 8_100, 9_000, 11_999} { // the JSON is there, and some of the blanks after it
		body := goodPurchase + strings.Repeat(" ", sent-len(goodPurchase))
		answers := wire(s, "a short body", fmt.Sprintf("POST /v1/campaigns/%s/purchases HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: 12000\r\n\r\n%s", id, s.App, uuid.NewString(), body))
		for _, a := range answers {
			if a.Status < 400 || a.Status >= 500 {
				t.Errorf("%d of 12000 bytes: %v %s", sent, a, a.Body)
			}
		}
	}
	if jobs := count(s, `SELECT count(*) FROM jobs WHERE client = $1`, s.Client("shop")); jobs > 0 {
		t.Errorf("%d purchases were accepted", jobs)
	}
}

// Its client has paid for the wait. What the api does then has all of its own time.
func TestABodyThatTakesLongLeavesTheRestOfItsRequestTheWholeTime(t *testing.T) {
	t.Parallel()
	const whole = time.Second
	s := fleet.Shared(t, quiet)
	path := s.Post("/v1/campaigns", fleet.CampaignBody(3)).Header.Get("Location")
	s.With("TRIPRIZE_API_REQUEST_TIMEOUT=" + whole.String())
	servers.Eventually(t, "a body that takes longer than a request may is read", func() bool { // the rest may take long on a busy machine, but not each time
		conn := dial(s)
		_, _ = fmt.Fprintf(conn, "PATCH %s HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 10013\r\n\r\n%10000s", path, s.Operator, "{") // its head, and more than is read with it
		time.Sleep(whole + whole/5)
		_, _ = io.WriteString(conn, `"name":"new"}`)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
		return err == nil && answer.StatusCode == http.StatusOK
	})
}

func TestNothingIsSentAsNothing(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path := s.Post("/v1/campaigns", fleet.CampaignBody(3)).Header.Get("Location")
	replays := func(what, path string, bodies ...string) {
		t.Helper()
		key := uuid.NewString()
		for i, body := range bodies {
			a := raw(s, http.MethodPost, path, body, key, "")
			if a.Status >= 300 || (a.Header.Get("Idempotent-Replayed") == "true") != (i > 0) {
				t.Errorf("%s with %q: %v %s", what, body, a, a.Body)
			}
		}
	}
	replays("a publication", path+"/publish", "", "{}", " {\n} ")
	replays("a pause", path+"/pause", "{}", "")
	replays("its end", path+"/resume", "", "{}")
	replays("a hold", path+"/holds", `{"user_id":"a","quantity":1}`, `{"user_id":"a","quantity":1,"layer":null,"ttl_seconds":null,"positions":null}`)
	replays("a purchase", path+"/purchases", `{"user_id":"a","selection":{"quantity":1,"hold_id":null},"payment":{"method":"external","reference":null}}`, goodPurchase)
	hold := s.MustHold(fleet.HoldOrder{Campaign: uuid.MustParse(strings.TrimPrefix(path, "/v1/campaigns/")), User: "b", Quantity: 1})
	replays("an extension", "/v1/holds/"+hold.ID.String()+"/extend", `{"ttl_seconds":null}`, "", "{}")
	wantAnswer(t, "a release with {}", raw(s, http.MethodDelete, "/v1/holds/"+hold.ID.String(), "{}", "-", ""), 204)
	for _, body := range []string{"[]", `{"a":1}`, "null", "x", "{}{}"} {
		wantAnswer(t, fmt.Sprintf("a pause with %s", body), raw(s, http.MethodPost, path+"/pause", body, "", ""), 400)
	}
	for body, status := range map[string]int{`{"name":null}`: 400, `{"purchase_limit":null}`: 200} {
		if a := raw(s, http.MethodPatch, path, body, "-", ""); a.Status != status && a.Status != http.StatusConflict {
			t.Errorf("a PATCH with %s: %v %s", body, a, a.Body)
		}
	}
	wallet := s.Wallet(s.User("a"), 100)
	wantAnswer(t, "nearly one", raw(s, http.MethodPost, wallet+"/credit", `{"amount":0.99999999999999999999}`, "", ""), 400, `"/amount"`)
	s.ExpectWallet(wallet, 100, 0)
}

func TestAUserHasFewerStreamsAndWaitsThanAnApp(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: append([]string{fleet.Lively, "TRIPRIZE_STREAMS_MAX_PER_USER=2", "TRIPRIZE_API_WAITS_PER_USER=2"}, fleet.Trusting.Env...)})
	id := s.Campaign(4)
	mina, otto := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "otto", "")
	another := fleet.TokenFor(t, "mina", "") // of the same user
	tooMany := func(what string, a fleet.Answer) {
		t.Helper()
		refused(t, what, a, 429, "rate-limited")
		wantAnswer(t, what, a, having("Retry-After"))
	}
	open := []*fleet.Listener{s.Listen(0, mina, fleet.CampaignEvents(id), ""), s.Listen(0, another, fleet.CampaignEvents(id), "")}
	tooMany("a third stream", s.Listen(0, mina, fleet.CampaignEvents(id), "").Answer)
	for _, credential := range []string{s.App, s.App, s.App, otto} {
		open = append(open, s.Listen(0, credential, fleet.CampaignEvents(id), ""))
	}
	for _, l := range open {
		l.WantEvent()
		l.HangUp()
	}

	buy := func(credential, prefer string) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases", map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": prefer},
			fleet.RawJSON(strings.NewReplacer("external", "wallet", `"a"`, `"mina"`).Replace(goodPurchase)))
	}
	queued := buy(mina, "")
	mustAnswer(t, "", queued, 202)
	var waiting sync.WaitGroup
	wait := func(credential string) { waiting.Go(func() { buy(credential, fleet.UntilFinal) }) }
	wait(mina)
	wait(another)
	s.AwaitMetric(0, "triprize_jobs_waited_for", 2)
	tooMany("a third wait", buy(mina, "wait=1"))
	tooMany("a third wait, for a job", s.Do(0, mina, http.MethodGet, "/v1/jobs/"+queued.ID.String(), map[string]string{"Prefer": "wait=1"}, nil))
	wantAnswer(t, "without waiting", s.Do(0, mina, http.MethodGet, "/v1/jobs/"+queued.ID.String(), nil, nil), 200)
	for range 3 {
		wait(s.App)
	}
	s.AwaitMetric(0, "triprize_jobs_waited_for", 5)
	s.RunWorker()
	waiting.Wait()
	servers.Eventually(t, "she may wait again", func() bool { return buy(mina, fleet.UntilFinal).Status == http.StatusOK })
}

// sentAtOnce sends the beginning of a request, and reads until the connection is half-closed: nothing more is sent.
func sentAtOnce(s *fleet.System, head string) (answer string, err error) {
	s.T.Helper()
	conn := dial(s)
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

// Nobody waits for the body of an unknown sender, nor for one whose signature cannot be right. A body that is only
// promised shows that it is neither read nor has room.
func TestARequestWithoutALengthOrAnEndIsRefusedWithItsCode(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	hasty := fleet.Shared(t, quiet).With("TRIPRIZE_API_READ_TIMEOUT=500ms")
	const long = "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
	signature := func(text string) string {
		return "POST /webhooks/stripe HTTP/1.1\r\nHost: api\r\nStripe-Signature: " + text + "\r\nContent-Type: application/json\r\nContent-Length: 262144\r\n\r\n" + readFirst
	}
	now := fmt.Sprintf("t=%d", time.Now().Unix())
	for what, c := range map[string]struct {
		s          *fleet.System
		head, says string
	}{
		"without a length":                {hasty, "POST /v1/campaigns HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: gzip\r\n\r\n", `"code":"length-required"`},
		"without an end":                  {hasty, "POST /v1/campaigns HTTP/1.1\r\nHost: ap", `"code":"request-timeout"`},
		"nobody's":                        {s, long + "\r\n{", "HTTP/1.1 401 "},
		"with a wrong key":                {s, long + "Authorization: Bearer tp_a_b\r\n\r\n{", "HTTP/1.1 401 "},
		"an event with no form":           {s, signature("x"), "HTTP/1.1 400 "},
		"an event without a signature":    {s, signature(now), "HTTP/1.1 400 "},
		"an event with a short signature": {s, signature(now + ",v1=00"), "HTTP/1.1 400 "},
		"an event that was sent long ago": {s, signature(signed("", webhookSecret, time.Now().Add(-time.Hour))["Stripe-Signature"]), "HTTP/1.1 400 "},
	} {
		answer, err := sentAtOnce(c.s, c.head)
		for tries := 0; c.s == hasty && answer == "" && tries < 100; tries++ { // not even its first byte has come in time
			answer, err = sentAtOnce(c.s, c.head)
		}
		if err != nil || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %s, %v", what, answer, err)
		}
	}
}
