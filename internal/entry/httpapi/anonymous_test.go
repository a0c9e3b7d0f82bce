package httpapi

import (
	"context"
	"testing"
	"testing/synctest"

	"triprize/internal/domain/fault"
)

// However many anonymous callers come, few are served at once; the others wait for a while, and
// those of one address leave room for others.
func TestFewAnonymousRequestsAreServedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAnonymous(1)
		var leave []func()
		for range anonymousServed {
			one, err := s.enter(context.Background(), "a")
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, one)
		}
		answers := make(chan error, anonymousOfAddress)
		for range anonymousOfAddress - anonymousServed {
			go func() {
				_, err := s.enter(context.Background(), "a")
				answers <- err
			}()
		}
		synctest.Wait()
		if _, err := s.enter(context.Background(), "a"); fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("one more of the address: %v", err)
		}
		other := make(chan error, 1)
		go func() {
			_, err := s.enter(context.Background(), "b")
			other <- err
		}()
		synctest.Wait()
		if len(answers)+len(other) > 0 {
			t.Error("more are served than may be")
		}
		for range anonymousOfAddress - anonymousServed {
			if err := <-answers; fault.CodeOf(err) != fault.Overloaded { // the clock goes on when all wait
				t.Errorf("who waits for long: %v", err)
			}
		}
		if err := <-other; err == nil {
			t.Error("a request of another address was served")
		}
		for _, one := range leave {
			one()
		}
		if _, err := s.enter(context.Background(), "b"); err != nil || s.waiting.Open() != 1 {
			t.Errorf("later: %v, %d places are taken", err, s.waiting.Open())
		}
	})
}
