package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// The list of the seat-booking document of what must not book a seat twice; a
// lock that expires in mid-transaction is in holds_crash_test.go, and crowds are
// in holds_test.go.

func TestOneKeyFiftyTimesInParallelIsOneHold(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	id := s.campaign(4)
	same := ask{campaign: id, user: "a", key: "the same", at: []place{{2, 1}}}
	answers := atOnce(50, func(i int) held {
		a := same
		a.api = i
		return s.hold(a)
	})
	first, replayed := answers[0], 0
	for i, h := range answers {
		if h.status != http.StatusCreated || h.ID != first.ID || !bytes.Equal(h.body, first.body) {
			t.Errorf("request %d: %v, and the first: %v", i, h, first)
		}
		if h.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != 49 {
		t.Errorf("%d of 50 answers say that they are replays", replayed)
	}
	s.wantHeldOnce(id)
	if a := s.release(s.app, first.ID); a.status != http.StatusNoContent {
		t.Fatal(a)
	}
	if again := s.hold(same); again.ID != first.ID || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("once it is released: %v", again)
	}
	if now := s.holdNow(s.app, first.ID); now.State != "released" {
		t.Errorf("a replay revived it: %v", now)
	}
}

func TestAKeyOfAHoldIsRefusedToAnotherRequest(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	id, other := s.campaign(4), s.campaign(4)
	first := s.mustHold(ask{campaign: id, user: "a", key: "k", at: []place{{2, 1}}})
	for what, a := range map[string]ask{
		"another position": {campaign: id, user: "a", key: "k", at: []place{{2, 2}}},
		"one more":         {campaign: id, user: "a", key: "k", at: []place{{2, 1}, {2, 2}}},
		"another user":     {campaign: id, user: "b", key: "k", at: []place{{2, 1}}},
		"another campaign": {campaign: other, user: "a", key: "k", at: []place{{2, 1}}},
		"another ttl":      {campaign: id, user: "a", key: "k", at: []place{{2, 1}}, ttl: 60},
		"a number of them": {campaign: id, user: "a", key: "k", quantity: 1},
	} {
		if h := s.hold(a); h.status != http.StatusUnprocessableEntity || h.code() != "idempotency-key-reused" {
			t.Errorf("%s: %v", what, h)
		}
	}
	if a := s.buy(order{campaign: id, user: "a", key: "k"}); a.status != http.StatusUnprocessableEntity || a.code() != "idempotency-key-reused" {
		t.Errorf("a purchase: %v", a)
	}
	if again := s.hold(ask{campaign: id, user: "a", key: "k", at: []place{{2, 1}}}); again.ID != first.ID {
		t.Errorf("the same: %v", again)
	}
	s.wantHeldOnce(id)
}

func TestAKeyWithTwoPayloadsAtOnceIsOneHold(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	id := s.campaign(4)
	answers := atOnce(40, func(i int) held {
		return s.hold(ask{campaign: id, user: "a", key: "k", at: []place{{4, 1 + i%2}}, api: i / 2})
	})
	won := 0 // which of the two payloads came first
	if answers[1].status == http.StatusCreated {
		won = 1
	}
	for i, h := range answers {
		if i%2 == won && (h.status != http.StatusCreated || h.ID != answers[won].ID) || i%2 != won && h.code() != "idempotency-key-reused" {
			t.Errorf("request %d, when the payloads of %d came first: %v", i, won, h)
		}
	}
	s.wantHeldOnce(id)
}

// holdBound is far above what an answer takes here, and below any wait for Redis
// but the one that locks.timeout bounds.
const holdBound = 10 * time.Second

func TestARedisThatIsSlowOrDeadSlowsHoldsWithinABoundAndOneWins(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 1, workers: -1, schedulers: -1})
	line := newRedisLine(t, s.settings.Redis.URL)
	patient := []string{"TRIPRIZE_REDIS_URL=" + line.url, "TRIPRIZE_REDIS_READ_TIMEOUT=30s", "TRIPRIZE_REDIS_WRITE_TIMEOUT=30s", "TRIPRIZE_REDIS_DIAL_TIMEOUT=30s"}
	s.urls = nil // the one that is near Redis is not asked
	for range 2 {
		s.startAPI(patient...)
	}
	at := place{3, 2}
	known := make(map[string]float64)
	for _, c := range []struct {
		what  string
		delay time.Duration
		dead  bool
	}{{"near", 0, false}, {"slow", 20 * time.Millisecond, false}, {"slower than anybody waits", 2 * time.Second, false}, {"dead", 0, true}} {
		line.set(c.delay, c.dead)
		id := s.campaign(4)
		begun := time.Now()
		winner := wantOneWinner(t, atOnce(30, func(i int) held {
			return s.hold(ask{campaign: id, user: fmt.Sprint("user-", i), at: []place{at}, api: i})
		}), at)
		s.wantHeldOnce(id)
		if a := s.release(s.app, winner.ID); a.status != http.StatusNoContent {
			t.Errorf("%s: %v", c.what, a)
		}
		if took := time.Since(begun); took > holdBound {
			t.Errorf("%s: 30 answers and a release took %s", c.what, took)
		}
		t.Logf("a Redis that is %s: 30 answers and a release within %s", c.what, time.Since(begun).Round(time.Millisecond))
		line.set(0, false) // the metrics ask Redis too
		before := known
		known = map[string]float64{"acquired": s.lockWaits("acquired"), "taken": s.lockWaits("taken"), "no_quorum": s.lockWaits("no_quorum")}
		if isGood := known["acquired"] > before["acquired"]; isGood != (c.delay < time.Second && !c.dead) || !isGood && known["no_quorum"] == before["no_quorum"] {
			t.Errorf("%s: locks were %v, and then %v: the test does not test", c.what, before, known)
		}
	}
}

// lockWaits counts, in all apis, the attempts to lock that ended in an outcome.
func (s *system) lockWaits(outcome string) (n float64) {
	for api := range s.urls {
		n += s.lockWaitsOf(api, outcome)
	}
	return n
}

func (s *system) lockWaitsOf(api int, outcome string) float64 {
	s.t.Helper()
	return max(0, s.metric(api, `triprize_lock_wait_seconds_count{outcome="`+outcome+`"}`))
}

func TestACommitThatTakesLongerThanTheLockLastsLetsOneIn(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1, env: []string{"TRIPRIZE_LOCKS_TTL=300ms", "TRIPRIZE_LOCKS_TIMEOUT=100ms"}})
	id := s.campaign(4)
	slow, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), `SELECT FROM campaigns WHERE id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	at, released := place{3, 2}, make(chan error, 1)
	go func() {
		time.Sleep(time.Second) // the scenario: who got the lock cannot commit for three times its TTL
		if kept := s.locks(); len(kept) != 1 {
			t.Errorf("the locks of who waits for Postgres: %v", kept)
		}
		released <- slow.Rollback(t.Context())
	}()
	begun := time.Now()
	wantOneWinner(t, atOnce(20, func(i int) held {
		return s.hold(ask{campaign: id, user: fmt.Sprint("user-", i), at: []place{at}, api: i})
	}), at)
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("it took %s: the test does not test", took)
	}
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	s.wantHeldOnce(id)
	for api := range 2 {
		if n := s.metric(api, "triprize_lock_lost_total"); n != 0 {
			t.Errorf("api %d: %.0f locks of holders that live were lost", api, n)
		}
	}
}
