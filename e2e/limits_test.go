package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

var limitField = regexp.MustCompile(`^"(user|client)";r=(\d+);t=(\d+)$`)

// burst is what came of many requests of somebody at the same moment.
type burst struct {
	passed, refused []answer
	took            time.Duration
}

// burst sends n orders at once and sorts the answers; any but 202 and 429 fails the test.
func (s *system) burst(n int, orderOf func(i int) order) (b burst) {
	s.t.Helper()
	begun := time.Now()
	answers := s.crowd(n, orderOf)
	b.took = time.Since(begun)
	for _, a := range answers {
		switch a.status {
		case http.StatusAccepted:
			b.passed = append(b.passed, a)
		case http.StatusTooManyRequests:
			b.refused = append(b.refused, a)
		default:
			s.t.Fatal(a)
		}
	}
	return b
}

// check wants as many to have passed as a limit allows, and what it says about itself.
func (b burst) check(t *testing.T, policy string, whole, rate int) {
	t.Helper()
	window := whole / rate
	if most := whole + int(b.took.Seconds()*float64(rate)) + 1; len(b.passed) < whole || len(b.passed) > most || len(b.refused) == 0 {
		t.Errorf("%d passed and %d did not within %s, want %d to %d", len(b.passed), len(b.refused), b.took, whole, most)
	}
	for i, a := range append(b.passed, b.refused...) {
		field := limitField.FindStringSubmatch(a.header.Get("RateLimit"))
		if want := fmt.Sprintf(`"%s";q=%d;w=%d`, policy, whole, window); a.header.Get("RateLimit-Policy") != want || field == nil || field[1] != policy {
			t.Fatalf("answer %d has %v, want %s", i, a.header, want)
		}
		left, _ := strconv.Atoi(field[2])
		reset, _ := strconv.Atoi(field[3])
		if left >= whole || reset > window+1 {
			t.Errorf("answer %d: %s", i, field[0])
		}
	}
	for _, a := range b.refused {
		after, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil || after < 1 || after > window || a.code() != "rate-limited" || !strings.Contains(a.header.Get("RateLimit"), ";r=0;") {
			t.Errorf("refused with %v, %v", a, a.header)
		}
		checkProblem(t, a)
	}
}

// patient lets requests wait for Redis longer than a busy machine keeps it: a
// request that passes because Redis is slow counts for none of the limits tested here.
const patient = "TRIPRIZE_LIMITS_BUDGET=5s"

func TestAUserThatAsksTooOftenWaitsAndNobodyElse(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, env: []string{"TRIPRIZE_LIMITS_USER_RATE=10", patient}}) // the default
	id := s.campaign(30)
	hasty := func(i int) order { return order{campaign: id, user: "hasty", key: fmt.Sprint(i), api: i} }
	b := s.burst(120, hasty)
	b.check(t, "user", 20, 10)
	var jobs int
	if err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs`).Scan(&jobs); err != nil || jobs != len(b.passed) {
		t.Errorf("%d jobs for %d requests that passed, %v", jobs, len(b.passed), err)
	}

	// Kept at her limit, she reads as much as she likes; others buy.
	for i := range 40 {
		s.buy(hasty(1000 + i))
		if a := s.do(i, s.app, http.MethodGet, "/v1/users/hasty/purchases", nil, nil); a.status != http.StatusOK || a.header.Get("RateLimit") != "" {
			t.Errorf("a read: %v, %v", a, a.header)
		}
		if a := s.buy(order{campaign: id, user: fmt.Sprint("calm", i), api: i}); a.status != http.StatusAccepted {
			t.Errorf("another user: %v", a)
		}
	}
	body := rawJSON(`{"user_id":"hasty","selection":{"quantity":1},"payment":{"method":"external"}}`)
	if a := s.do(0, s.newKey("another-shop"), http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases",
		map[string]string{"Idempotency-Key": "k"}, body); a.status != http.StatusAccepted || !strings.HasPrefix(a.header.Get("RateLimit"), `"user";r=19;`) {
		t.Errorf("another shop's user of that name: %v, %v", a, a.header)
	}

	// The same keys go through in the end: to the job that is there, or to a new one.
	before := make(map[uuid.UUID]bool)
	for _, a := range b.passed {
		before[a.ID] = true
	}
	for i := range 30 {
		var again answer
		eventually(t, 30*time.Second, "the key goes through", func() bool { again = s.buy(hasty(i)); return again.status == http.StatusAccepted })
		if replayed := again.header.Get("Idempotent-Replayed") == "true"; replayed != before[again.ID] {
			t.Errorf("key %d: replayed %t, but it has passed before: %t", i, replayed, before[again.ID])
		}
	}
}

func TestAClientHasALimitOverAllItsUsers(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, env: []string{"TRIPRIZE_LIMITS_CLIENT_RATE=5", "TRIPRIZE_LIMITS_CLIENT_BURST=30", patient}})
	id := s.campaign(30)
	s.burst(150, func(i int) order { return order{campaign: id, user: fmt.Sprint(i), api: i} }).check(t, "client", 30, 5)
	if a := s.post("/v1/campaigns", campaignBody(3)); a.status != http.StatusCreated || !strings.HasPrefix(a.header.Get("RateLimit"), `"client";r=29;`) {
		t.Errorf("another client: %v, %v", a, a.header)
	}
}

// A token is for one user, whatever the body says.
func TestAUserCannotAskInOtherNamesToEscapeItsLimit(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, env: append([]string{"TRIPRIZE_LIMITS_USER_RATE=1", "TRIPRIZE_LIMITS_USER_BURST=5", patient}, trusting.env...)})
	path := "/v1/campaigns/" + s.campaign(4).String() + "/purchases"
	mina := tokenFor(t, "mina", "")
	var mu sync.Mutex
	var limited, forbidden int
	var all sync.WaitGroup
	begun := time.Now()
	for i := range 60 {
		all.Go(func() {
			a := s.do(0, mina, http.MethodPost, path, map[string]string{"Idempotency-Key": fmt.Sprint(i)},
				rawJSON(fmt.Sprintf(`{"user_id":"other-%d","selection":{"quantity":1},"payment":{"method":"external"}}`, i)))
			mu.Lock()
			defer mu.Unlock()
			switch a.status {
			case http.StatusTooManyRequests:
				limited++
			case http.StatusForbidden:
				forbidden++
			default:
				t.Error(a)
			}
		})
	}
	all.Wait()
	if most := 5 + int(time.Since(begun).Seconds()) + 1; forbidden > most || limited == 0 {
		t.Errorf("%d requests in other names were looked at, want at most %d; %d were limited", forbidden, most, limited)
	}
	for range 20 {
		if a := s.do(0, mina, http.MethodGet, "/v1/users/mina/purchases", nil, nil); a.status != http.StatusOK || a.header.Get("RateLimit") != "" {
			t.Errorf("a read: %v, %v", a, a.header)
		}
	}
}

func TestWithoutRedisNobodyIsLimited(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true, workers: -1, schedulers: -1, env: []string{"TRIPRIZE_LIMITS_USER_RATE=1", "TRIPRIZE_LIMITS_USER_BURST=1"}})
	id := s.campaign(30)
	hasty := func(int) order { return order{campaign: id, user: "hasty"} }
	if b := s.burst(20, hasty); len(b.refused) == 0 && b.took < 15*time.Second {
		t.Errorf("nobody was limited within %s", b.took)
	}
	if err := s.stack.Redis.Stop(); err != nil {
		t.Fatal(err)
	}
	away := s.metric(0, `triprize_rate_limits_total{outcome="away"}`)
	b := s.burst(40, hasty)
	if len(b.refused) != 0 {
		t.Errorf("%d were limited", len(b.refused))
	}
	for _, a := range b.passed {
		if a.State != job.Queued || a.header.Get("RateLimit") != "" {
			t.Errorf("got %v, %v", a, a.header)
		}
	}
	if n := s.metric(0, `triprize_rate_limits_total{outcome="away"}`) - away; n != 40 {
		t.Errorf("%v requests were counted as passed without Redis, want 40", n)
	}
	if err := s.stack.Redis.RestartAfter(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the limit is back", func() bool { return s.buy(hasty(0)).status == http.StatusTooManyRequests })
}

func TestConnectionsOverTheLimitAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1})
	s.startAPI("TRIPRIZE_API_MAX_CONNECTIONS=8")
	address := strings.TrimPrefix(s.urls[1], "http://")
	// ask opens a connection and asks for something; it stays open when it is served.
	ask := func() (net.Conn, int) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: api\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil { // closed, perhaps before it was read
			return conn, 0
		}
		defer func() { _ = response.Body.Close() }()
		return conn, response.StatusCode
	}
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	status := http.StatusOK
	for status == http.StatusOK {
		var conn net.Conn
		conn, status = ask()
		open = append(open, conn)
		if len(open) > 9 {
			t.Fatalf("connection %d is served", len(open))
		}
	}
	if status != 0 && status != http.StatusServiceUnavailable || len(open) < 7 { // one or two may be the test's own
		t.Errorf("connection %d got status %d", len(open), status)
	}
	_ = open[0].Close()
	eventually(t, 30*time.Second, "there is room again", func() bool {
		conn, status := ask()
		_ = conn.Close()
		return status == http.StatusOK
	})
}
