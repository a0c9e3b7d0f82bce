package httpapi_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"triprize/internal/entry/httpapi/body"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const events = `SELECT count(*) FROM payment_events`

func TestAnEventIsStoredOnceAndOnlyWhenItIsSigned(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken)
	good, now := event(s.User("evt_good")), time.Now()
	stored := func() int { return count(s, events+` WHERE id LIKE '%' || $1`, s.User("")) }
	big := strings.Replace(event(s.User("evt_big")), `"metadata":{}`, `"metadata":{"a":"`+strings.Repeat("a", 300<<10)+`"}`, 1)
	live := strings.Replace(event(s.User("evt_live")), `"livemode":false`, `"livemode":true`, 1)
	other := strings.Replace(event(s.User("evt_other")), `"livemode":false`, `"livemode":false,"account":"acct_1"`, 1)
	with := func(header map[string]string, name, value string) map[string]string {
		header[name] = value
		return header
	}
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		status int
		says   string
	}{
		"no signature":         {good, nil, 400, "is missing"},
		"no form":              {good, map[string]string{"Stripe-Signature": "x"}, 400, "does not fit"},
		"another secret":       {good, signed(good, "whsec_of_somebody_else_entirely", now), 400, "does not fit"},
		"another body":         {strings.Replace(good, "succeeded", "canceled", 1), signed(good, webhookSecret, now), 400, "does not fit"},
		"no time":              {good, map[string]string{"Stripe-Signature": "v1=" + strings.Repeat("0", 64)}, 400, "too long ago"},
		"long ago":             {good, signed(good, webhookSecret, now.Add(-time.Hour)), 400, "too long ago"},
		"not JSON":             {"{", signed("{", webhookSecret, now), 400, "not an event"},
		"not an event":         {"{}", signed("{}", webhookSecret, now), 400, "not an event"},
		"nothing":              {"", signed("", webhookSecret, now), 400, "not an event"},
		"of another mode":      {live, signed(live, webhookSecret, now), 400, "not an event for this system"},
		"of another account":   {other, signed(other, webhookSecret, now), 400, "not an event for this system"},
		"too long":             {big, signed(big, webhookSecret, now), 413, "262144 bytes"},
		"not JSON by its type": {good, with(signed(good, webhookSecret, now), "Content-Type", "text/plain"), 415, "application/json"},
		"compressed":           {good, with(signed(good, webhookSecret, now), "Content-Encoding", "gzip"), 415, "Content-Encoding"},
	} {
		a := webhookRaw(s, c.body, c.header)
		for tries := 0; a.Err != nil && tries < 20; tries++ { // what is too long is refused before all of it is sent: then its sender may miss the answer
			a = webhookRaw(s, c.body, c.header)
		}
		wantAnswer(t, name, a, c.status, c.says)
		fleet.CheckProblem(t, a)
	}
	if n := stored(); n != 0 {
		t.Fatalf("%d events are believed", n)
	}
	for range 3 {
		if a := webhookRaw(s, good, signed(good, webhookSecret, now)); a.Status != http.StatusOK || string(a.Body) != `{"received":true}` {
			t.Errorf("%v %s", a, a.Body)
		}
	}
	if n := count(s, events+` WHERE id = $1 AND payload = $2`, s.User("evt_good"), good); n != 1 || stored() != 1 {
		t.Errorf("%d events are stored as they were sent, of %d", n, stored())
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
		wantAnswer(t, method, s.Do(0, "", method, "/webhooks/stripe", nil, nil), 405)
	}
}

// webhookRaw sends an event as it is.
func webhookRaw(s *fleet.System, body string, header map[string]string) fleet.Answer {
	all := map[string]string{"Content-Type": "application/json; charset=utf-8"} // as the provider says it
	maps.Copy(all, header)
	return rawWith(s, http.MethodPost, "/webhooks/stripe", body, all)
}

// readFirst is as much of a body as is read before anything looks at its request.
var readFirst = strings.Repeat(" ", body.AtOnce)

// Sixteen bodies announce as much as all may have, and stay. An event from another address does not wait for them. A
// second api cuts a slow body, whose pace alone would let it stay for minutes.
func TestKeylessBodiesOfAnAddressKeepNoEventsOfAnotherOut(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken).With("TRIPRIZE_API_READ_TIMEOUT=1h", "TRIPRIZE_PAYMENTS_STRIPE_EVENT_TIMEOUT=1h")
	head := func(signature string, length int) string {
		return fmt.Sprintf("POST /webhooks/stripe HTTP/1.1\r\nHost: api\r\nConnection: close\r\nStripe-Signature: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", signature, length)
	}
	slow := func() net.Conn {
		conn := dial(s)
		_, err := io.WriteString(conn, head(signed("", webhookSecret, time.Now())["Stripe-Signature"], 262144)+readFirst)
		servers.NoError(t, err)
		return conn
	}
	before := s.Metric(0, "triprize_http_requests_in_flight")
	for range 16 {
		slow()
	}
	s.AwaitMetric(0, "triprize_http_requests_in_flight", before+16)
	long := strings.Replace(event(s.User("evt_long")), `"metadata":{}`, `"metadata":{"a":"`+strings.Repeat("a", 12<<10)+`"}`, 1)
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URLs[0], "http://"))
	servers.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(servers.Patience))
	if _, err := io.WriteString(conn, head(signed(long, webhookSecret, time.Now())["Stripe-Signature"], len(long))+long); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("%s, %v", answer, err)
	}
	s.With("TRIPRIZE_API_READ_TIMEOUT=1h")
	if answer, _ := io.ReadAll(slow()); !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("a slow one: %s", answer)
	}
}

// While the table is locked the first batches wait for it, and all other events share the
// next one or two.
func TestEventsThatArriveTogetherShareTransactions(t *testing.T) {
	t.Parallel()
	const many = 150
	s := fleet.Start(t, fleet.Options{APIs: 1, Workers: -1, Schedulers: -1, Env: takingCards})
	tap := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.URLs = nil
	s.RunAPI("TRIPRIZE_POSTGRES_URL=" + tap.URL)
	unlock := locked(t, s.DB, `LOCK payment_events`)
	answers := make(chan fleet.Answer, many)
	for i := range many {
		go func() {
			body := event(fmt.Sprintf("evt_%d", i%(many/2))) // each twice
			answers <- webhookRaw(s, body, signed(body, webhookSecret, time.Now()))
		}()
	}
	s.AwaitMetric(0, "triprize_provider_events_storing", many)
	unlock()
	for range many {
		wantAnswer(t, "", <-answers, 200)
	}
	wantEqual(t, "stored events", count(s, events), many/2)
	// Two that were alone or nearly, then batches of up to a hundred, and some room for
	// those that were only about to join one.
	if n := tap.Count("INSERT INTO payment_events"); n > many/4 {
		t.Errorf("%d events took %d statements", many, n)
	}
}

func TestAnEventThatCannotBeStoredIsToComeAgain(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: append([]string{"TRIPRIZE_ACCEPT_TIMEOUT=200ms"}, takingCards...)})
	body := event("evt_1")
	unlock := locked(t, s.DB, `LOCK payment_events`)
	wantAnswer(t, "", webhookRaw(s, body, signed(body, webhookSecret, time.Now())), 503, coded("unavailable"), having("Retry-After"))
	unlock()
	servers.Eventually(t, "it is stored", func() bool {
		return webhookRaw(s, body, signed(body, webhookSecret, time.Now())).Status == http.StatusOK
	})
	wantEqual(t, "events", count(s, events), 1)
}

// Bad signatures ask nothing of Postgres, and nothing of anybody's rate limit.
func TestAFloodOfBadSignaturesCostsNoQuery(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, cardsTaken).With("TRIPRIZE_LIMITS_CLIENT_RATE=1", "TRIPRIZE_LIMITS_CLIENT_BURST=1")
	body := event(s.User("evt_1"))
	fleet.Together(200, func(int) {
		wantAnswer(t, "", webhookRaw(s, body, signed(body, "whsec_of_somebody_else_entirely", time.Now())), 400)
	})
	wantAnswer(t, "a good one after the flood", webhookRaw(s, body, signed(body, webhookSecret, time.Now())), 200)
	if stored, refused := s.Metric(0, `triprize_provider_events_received_total{outcome="stored"}`), s.Metric(0, `triprize_provider_events_received_total{outcome="refused"}`); stored != 1 || refused != 200 {
		t.Errorf("%v stored, %v refused", stored, refused)
	}
	if n := s.Metric(0, `triprize_payment_events_stored_total{source="webhook"}`); n != 1 || count(s, events+` WHERE id = $1`, s.User("evt_1")) != 1 {
		t.Errorf("%v events went to Postgres", n)
	}
}
