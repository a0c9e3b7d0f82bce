package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// burst is what came of many requests of somebody at the same moment.
type burst struct {
	passed, refused []fleet.Answer
	took            time.Duration
}

// burstOf sends n orders at once and sorts the answers; any but 202 and 429 fails the test.
func burstOf(s *fleet.System, n int, orderOf func(i int) fleet.Order) (b burst) {
	s.T.Helper()
	begun := time.Now()
	answers := s.Crowd(n, orderOf)
	b.took = time.Since(begun)
	for _, a := range answers {
		switch a.Status {
		case http.StatusAccepted:
			b.passed = append(b.passed, a)
		case http.StatusTooManyRequests:
			b.refused = append(b.refused, a)
		default:
			s.T.Fatal(a)
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
		var left, reset int
		_, err := fmt.Sscanf(a.Header.Get("RateLimit"), `"`+policy+`";r=%d;t=%d`, &left, &reset)
		if err != nil || left >= whole || reset > window+1 || a.Header.Get("RateLimit-Policy") != fmt.Sprintf(`"%s";q=%d;w=%d`, policy, whole, window) {
			t.Fatalf("answer %d has %v, %v", i, a.Header, err)
		}
	}
	for _, a := range b.refused {
		after, err := strconv.Atoi(a.Header.Get("Retry-After"))
		if err != nil || after < 1 || after > window || a.Refusal() != "rate-limited" || !strings.Contains(a.Header.Get("RateLimit"), ";r=0;") {
			t.Errorf("refused with %v, %v", a, a.Header)
		}
		fleet.CheckProblem(t, a)
	}
}

func TestAUserThatAsksTooOftenWaitsAndNobodyElse(t *testing.T) {
	t.Parallel()
	limits := []string{"TRIPRIZE_LIMITS_USER_RATE=1", "TRIPRIZE_LIMITS_USER_BURST=19"} // no slack: two processes are exact
	s := fleet.Shared(t, quiet).With(limits...)
	s.RunAPI(limits...)
	id := s.Campaign(30)
	hasty := func(i int) fleet.Order { return fleet.Order{Campaign: id, User: "hasty", Key: fmt.Sprint(i), API: i} }
	b := burstOf(s, 120, hasty)
	b.check(t, "user", 19, 1)
	wantEqual(t, "jobs for requests that passed", jobsOf(s, id), len(b.passed))

	// Kept at her limit, she reads as much as she likes; others buy.
	for i := range 40 {
		s.Buy(hasty(1000 + i))
		wantAnswer(t, "a read", s.Do(i, s.App, http.MethodGet, "/v1/users/hasty/purchases", nil, nil), 200, valued{"RateLimit", ""})
		wantAnswer(t, "another user", s.Buy(fleet.Order{Campaign: id, User: fmt.Sprint("calm", i), API: i}), 202)
	}
	body := fleet.RawJSON(`{"user_id":"hasty","selection":{"quantity":1},"payment":{"method":"external"}}`)
	if a := s.Do(0, s.NewKey("another-shop"), http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases",
		map[string]string{"Idempotency-Key": "k"}, body); a.Status != http.StatusAccepted || !strings.HasPrefix(a.Header.Get("RateLimit"), `"user";r=18;`) {
		t.Errorf("another shop's user of that name: %v, %v", a, a.Header)
	}

	// The same keys go through in the end: to the job that is there, or to a new one.
	before := make(map[uuid.UUID]bool)
	for _, a := range b.passed {
		before[a.ID] = true
	}
	for _, i := range []int{0, 60, 119} {
		var again fleet.Answer
		servers.Eventually(t, "the key goes through", func() bool { again = s.Buy(hasty(i)); return again.Status == http.StatusAccepted })
		wantEqual(t, fmt.Sprintf("key %d: whether it is replayed", i), again.Header.Get("Idempotent-Replayed") == "true", before[again.ID])
	}
}

func TestAClientHasALimitOverAllItsUsers(t *testing.T) {
	t.Parallel()
	limits := []string{"TRIPRIZE_LIMITS_CLIENT_RATE=1", "TRIPRIZE_LIMITS_CLIENT_BURST=19"}
	s := fleet.Shared(t, quiet).With(limits...)
	s.RunAPI(limits...)
	id := s.Campaign(30)
	burstOf(s, 150, func(i int) fleet.Order { return fleet.Order{Campaign: id, User: fmt.Sprint(i), API: i} }).check(t, "client", 19, 1)
	if a := s.Post("/v1/campaigns", fleet.CampaignBody(3)); a.Status != http.StatusCreated || !strings.HasPrefix(a.Header.Get("RateLimit"), `"client";r=18;`) {
		t.Errorf("another client: %v, %v", a, a.Header)
	}
}

// Reads are charged too: to the address of an anonymous caller, to that of a wrong credential,
// and to a user; what is read again for nothing as well. Nobody else is refused. The second api trusts
// this test to name the caller, behind the caller's own claims.
func TestAFloodOfReadsIsLimitedAndNobodyElse(t *testing.T) {
	t.Parallel()
	limits := []string{"TRIPRIZE_LIMITS_ADDRESS_RATE=1", "TRIPRIZE_LIMITS_ADDRESS_BURST=5", "TRIPRIZE_LIMITS_USER_RATE=1", "TRIPRIZE_LIMITS_USER_BURST=5"}
	s := fleet.Shared(t, quiet).With(limits...)
	s.RunAPI(append(limits, "TRIPRIZE_API_TRUSTED_PROXIES=10.0.0.0/8, 127.0.0.0/8")...)
	path := "/v1/campaigns/" + s.Campaign(3).String()
	for caller, c := range []struct {
		what, credential, path string
		api                    int
		least                  int // of those that pass
		status                 int
	}{
		{"nobody", "", path + "/draw", 0, 5, http.StatusOK},
		{"nobody, behind a proxy", "", path + "/draw", 1, 5, http.StatusOK},
		{"another, behind the same one", "", path + "/draw", 1, 5, http.StatusOK},
		{"a wrong key", "tp_a_b", path, 0, 5, http.StatusUnauthorized},
		{"a wrong token", "a.b.c", path, 0, 0, http.StatusUnauthorized}, // of the same address: after the key
		{"a user's board", fleet.TokenFor(t, s.User("mina"), ""), path + "/positions", 0, 20, http.StatusNotModified},
	} {
		passed, isRefused := 0, false
		for i := range 2000 { // more than come back in the time, however slow the machine is
			claim, from := fmt.Sprintf("198.51.%d.%d", i/256, i%256), fmt.Sprint("203.0.113.", caller)
			if c.api == 0 { // it trusts nobody
				from = claim
			}
			forwarded := fmt.Sprintf("%s, %s, 10.0.0.%d", claim, from, i%256)
			a := s.Do(c.api, c.credential, http.MethodGet, c.path, map[string]string{"If-None-Match": "*", "X-Forwarded-For": forwarded}, nil)
			if a.Status == http.StatusOK && c.status == http.StatusOK || a.Status == http.StatusNotModified || a.Status == c.status {
				passed++
				continue
			}
			isRefused = a.Status == http.StatusTooManyRequests && a.Refusal() == "rate-limited" && a.Header.Get("Retry-After") != ""
			break
		}
		if passed < c.least || !isRefused {
			t.Errorf("%s: %d passed, then refused: %t", c.what, passed, isRefused)
		}
		for range 100 {
			mustAnswer(t, fmt.Sprintf("%s, and an app", c.what), s.Do(0, s.App, http.MethodGet, c.path, nil, nil), 200)
		}
	}
}

// A flood that makes Redis slow, or its loss, must not open the door.
func TestWithoutRedisEachProcessLimitsAlone(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true, Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_LIMITS_USER_RATE=1", "TRIPRIZE_LIMITS_USER_BURST=3", "TRIPRIZE_LIMITS_CLIENT_RATE=0"}})
	id := s.Campaign(30)
	hasty := func(int) fleet.Order { return fleet.Order{Campaign: id, User: "hasty"} }
	if b := burstOf(s, 20, hasty); len(b.refused) == 0 {
		t.Error("nobody was limited")
	}
	servers.NoError(t, s.Stack.Redis.Stop())
	away := s.Metric(0, `triprize_rate_limits_total{outcome="unavailable"}`)
	b := burstOf(s, 40, hasty)
	if most := 3 + int(b.took.Seconds()) + 1; len(b.passed) < 3 || len(b.passed) > most {
		t.Errorf("%d passed within %s, want 3 to %d", len(b.passed), b.took, most)
	}
	for _, a := range b.passed {
		if a.State != job.Queued || a.Header.Get("RateLimit") != "" { // what is left elsewhere is not known
			t.Errorf("got %v, %v", a, a.Header)
		}
	}
	for _, a := range b.refused {
		wantAnswer(t, "refused with", a, coded("rate-limited"), having("Retry-After"))
	}
	wantAnswer(t, "another user", s.Buy(fleet.Order{Campaign: id, User: "calm"}), 202)
	if n := s.Metric(0, `triprize_rate_limits_total{outcome="unavailable"}`) - away; n < 41 {
		t.Errorf("%v checks were counted as made without Redis, want 41", n)
	}
	servers.NoError(t, s.Stack.Redis.RestartAfter(context.Background(), 0))
	servers.Eventually(t, "what is left is known again", func() bool { return s.Buy(fleet.Order{Campaign: id, User: "calm"}).Header.Get("RateLimit") != "" })
}
