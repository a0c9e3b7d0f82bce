package lock_test

import (
	"errors"
	"testing"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
)

func TestATakenLockIsTriedForAsOftenAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	const tries, delay = 4, 40 * time.Millisecond
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		server.put("a", "another", 0)
		if _, err := c.locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
		at := server.times("take")
		if len(at) != tries {
			t.Fatalf("%d tries", len(at))
		}
		for i := range tries - 1 {
			if pause := at[i+1].Sub(at[i]); pause < delay/2 || pause > delay*3/2+1 {
				t.Errorf("%s between two tries", pause)
			}
		}
		if conflicts, taken := measured(t, c.registry, "triprize_lock_conflicts_total", ""), measured(t, c.registry, "triprize_lock_wait_seconds", "taken"); conflicts != tries || taken != 1 {
			t.Errorf("%d conflicts, %d acquisitions given up", conflicts, taken)
		}
	}, func(s *config.Locks) { s.Tries, s.RetryDelay = tries, delay })
}

func TestAnAcquisitionTakesNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		c.servers[0].put("a", "another", 0)
		began := time.Now()
		_, err := c.locker.Acquire(t.Context(), "a")
		if took := time.Since(began); !errors.Is(err, lock.ErrTaken) || took != timeout-patience {
			t.Errorf("%v after %s", err, took)
		}
	}, func(s *config.Locks) { s.Tries, s.RetryDelay = 100, 100*time.Millisecond })
}

// The try before it knew that somebody else has the lock.
func TestATryThatTheTimeoutEndsSaysWhatTheOneBeforeItKnew(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		server.put("a", "another", 0)
		server.set(func(s *simulated) {
			s.before = func(kind, _ string) error {
				if kind == "take" && server.count("take") == 2 {
					time.Sleep(timeout)
				}
				return nil
			}
		})
		if _, err := c.locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrTaken) || errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
	})
}

func TestASetOfWhichOneRanOutMeanwhileIsNotHeld(t *testing.T) {
	t.Parallel()
	simulate(t, 1, func(t *testing.T, c *cluster) {
		server := c.servers[0]
		server.put("b", "another", 500*time.Millisecond)
		if _, err := c.locker.Acquire(t.Context(), "a", "b"); !errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("got %v", err)
		}
		if server.holder("a") != "" || server.holder("b") != "" {
			t.Error("something is still held")
		}
	}, persistent, func(s *config.Locks) { s.TTL = 200 * time.Millisecond }) // which settings would not allow
}

// rest is how long a server is not asked that did not answer three times.
const rest = time.Second

func TestAServerThatHangsSlowsDownAFewAcquisitionsAndNotEach(t *testing.T) {
	t.Parallel()
	simulate(t, 3, func(t *testing.T, c *cluster) {
		first := c.servers[0]
		pass := func() (took time.Duration) {
			began := time.Now()
			acquire(t, c.locker, "a")()
			return time.Since(began)
		}
		if took := pass(); took != 0 || first.count("take") != 1 {
			t.Errorf("in health it took %s and %d commands", took, first.count("take"))
		}
		first.set(func(s *simulated) { s.hangs = true })
		for i := range 3 {
			if took := pass(); took > 2*patience { // one for the lock, one for giving it back
				t.Errorf("acquisition %d took %s", i+1, took)
			}
		}
		if n := first.count("take"); n != 1+3 {
			t.Errorf("it was asked %d times", n-1)
		}
		for began := time.Now(); time.Since(began) < rest/2; {
			if took := pass(); took != patience/10 { // to give the lock back is tried
				t.Fatalf("while the server rests it took %s", took)
			}
		}
		if n := first.count("take"); n != 1+3 {
			t.Errorf("while it rests it was asked %d times", n-4)
		}
		time.Sleep(rest)
		pass() // asks once
		pass()
		if n := first.count("take"); n != 1+3+1 {
			t.Errorf("after its rest it was asked %d times", n-4)
		}
		first.set(func(s *simulated) { s.hangs = false })
		time.Sleep(rest)
		for range 3 {
			if took := pass(); took != 0 {
				t.Errorf("after it is back it took %s", took)
			}
		}
		if n := first.count("take"); n != 1+3+1+3 {
			t.Errorf("after it is back it was asked %d times", n-5)
		}
	})
}

func TestAMajorityThatHangsIsKnownInBoundedTimeAndThenAtOnce(t *testing.T) {
	t.Parallel()
	simulate(t, 3, func(t *testing.T, c *cluster) {
		acquire(t, c.locker, "a")()
		for _, server := range c.servers[:2] {
			server.set(func(s *simulated) { s.hangs = true })
		}
		for i := range 6 {
			began := time.Now()
			if _, err := c.locker.Acquire(t.Context(), "a"); !errors.Is(err, lock.ErrNoQuorum) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took > timeout || i >= 3 && took > patience/2 {
				t.Errorf("acquisition %d took %s", i+1, took)
			}
		}
		c.each(func(s *simulated) { s.hangs = false })
		time.Sleep(rest)
		acquire(t, c.locker, "a")()
	})
}
