package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An api that is killed in the middle of a hold: its client gets no answer and
// asks again with the same key, elsewhere.
func TestAHoldOfAKilledAPIIsMadeOnce(t *testing.T) {
	for moment, isKept := range map[string]bool{"holds.commit": false, "holds.committed": true} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{workers: -1, schedulers: -1})
			doomed := s.startAPI("TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill")
			id := s.campaign(4)
			mine := ask{campaign: id, user: "a", key: "k", at: []place{{3, 2}}, api: 1}
			if lost := s.hold(mine); lost.err == nil {
				t.Fatalf("an answer: %v", lost)
			}
			eventually(t, 20*time.Second, "the api is dead", func() bool { return doomed.PID() == 0 })
			if n := s.campaignNow(id).Counts.Reserved; (n == 1) != isKept {
				t.Errorf("after the kill %d are held", n)
			}
			mine.api = 0
			begun := time.Now()
			h := s.mustHold(mine)
			if replayed := h.header.Get("Idempotent-Replayed") == "true"; replayed != isKept {
				t.Errorf("a replay: %t", replayed)
			}
			if took := time.Since(begun); took > holdBound {
				t.Errorf("the locks of the dead api held it up for %s", took)
			}
			if again := s.hold(mine); again.ID != h.ID {
				t.Errorf("%v, and again %v", h, again)
			}
			s.wantHeldOnce(id)
		})
	}
}

// The lock expires in mid-transaction: its holder is stopped inside of it, past
// the lock's TTL, while another api's client wants the same position, and then
// goes on.
func TestALockThatExpiresInMidTransactionLetsOnlyOneIn(t *testing.T) {
	for name, c := range map[string]struct {
		patience string // of Postgres with the stopped transaction
		first    bool   // who was stopped has it
	}{"it wakes up in time": {"60s", true}, "Postgres has given it up": {"1s", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{workers: -1, schedulers: -1, env: []string{"TRIPRIZE_LOCKS_TTL=500ms", "TRIPRIZE_LOCKS_TIMEOUT=200ms", "TRIPRIZE_POSTGRES_LOCK_TIMEOUT=30s"}})
			stopped := s.startAPI("TRIPRIZE_TEST_FAILPOINTS=holds.commit@first=stop", "TRIPRIZE_POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT="+c.patience)
			id, at := s.campaign(4), place{3, 2}
			mine := ask{campaign: id, user: "first", key: "k", at: []place{at}, api: 1}
			first, second := make(chan held, 1), make(chan held, 1)
			go func() { first <- s.hold(mine) }()
			eventually(t, 20*time.Second, "the api stops inside its transaction", func() bool { return isStopped(stopped) })
			eventually(t, 20*time.Second, "its lock is gone", func() bool { return len(s.locks()) == 0 })
			go func() { second <- s.hold(ask{campaign: id, user: "second", at: []place{at}, api: 0}) }()
			eventually(t, 20*time.Second, "another has the lock", func() bool { return s.lockWaitsOf(0, "acquired") == 1 })
			var one, other held
			if c.first {
				eventually(t, 20*time.Second, "the other stands before Postgres", func() bool { return s.waitsForPostgres() })
			} else {
				other = <-second
				wantOneWinner(t, []held{other}, at)
				s.wantHeldOnce(id)
			}
			if err := stopped.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if one = <-first; c.first {
				other = <-second
			} else { // all it knows is that its connection is dead
				if one.status != http.StatusServiceUnavailable || one.code() != "unavailable" || one.header.Get("Retry-After") == "" {
					t.Errorf("who was stopped: %v", one)
				}
				one = s.hold(mine)
			}
			if winner := wantOneWinner(t, []held{one, other}, at); (winner.ID == one.ID) != c.first {
				t.Errorf("who was stopped: %v; the other: %v", one, other)
			}
			s.wantHeldOnce(id)
			if h := s.hold(ask{campaign: id, user: "first", at: []place{{4, 1}}, api: 1}); h.status != http.StatusCreated {
				t.Errorf("who woke up is of no use: %v", h)
			}
		})
	}
}

// locks are the locks of positions in Redis.
func (s *system) locks() []string {
	s.t.Helper()
	keys, err := s.rdb.Keys(s.t.Context(), s.settings.Redis.Namespace+":lock:position:*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}

// waitsForPostgres tells whether a transaction of this database waits for a lock.
func (s *system) waitsForPostgres() (waits bool) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `
		SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits)
	if err != nil {
		s.t.Fatal(err)
	}
	return waits
}

// A lock that is somebody else's, of nobody who lives, is waited for and then
// passed by.
func TestALockThatNobodyGivesBackHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	id := s.campaign(4)
	key := fmt.Sprintf("%s:lock:position:%s:3/2", s.settings.Redis.Namespace, id)
	if err := s.rdb.Set(t.Context(), key, "of a dead process", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.mustHold(ask{campaign: id, user: "a", at: []place{{3, 2}}})
	if took := time.Since(begun); took > holdBound {
		t.Errorf("it took %s", took)
	}
	if n := s.lockWaits("taken"); n != 1 {
		t.Errorf("%.0f locks were found taken: the test does not test", n)
	}
	if value := s.rdb.Get(t.Context(), key).Val(); !strings.HasPrefix(value, "of a dead") {
		t.Errorf("it was taken away: %q", value)
	}
	s.wantHeldOnce(id)
}
