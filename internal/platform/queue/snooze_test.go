package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestATaskThatIsPutOffUntilATimeComesBackThen(t *testing.T) {
	t.Parallel()
	why := errors.New("not due")
	err := fmt.Errorf("a handler: %w", SnoozeFor(why, 42*time.Minute))
	if !errors.Is(err, ErrSnoozed) || !errors.Is(err, why) || !isSnoozed(err) {
		t.Errorf("%v is a failure", err)
	}
	for failures := range 3 {
		if got := retryDelay(failures, err, nil); got != 42*time.Minute {
			t.Errorf("after %d failures it comes back in %s", failures, got)
		}
	}
	if got := retryDelay(0, SnoozeFor(why, -time.Hour), nil); got != 0 {
		t.Errorf("what was due an hour ago comes back in %s", got)
	}
	if got := retryDelay(0, Snooze(why), nil); got < time.Second || got > 2*time.Second {
		t.Errorf("what has no time comes back in %s", got)
	}
	if SnoozeFor(nil, time.Hour) != nil {
		t.Error("no error became one")
	}
}

// The pause doubles with each failure up to 30 s, and a quarter of it at most comes on top.
func TestPausesDoubleUpToTheirLongest(t *testing.T) {
	t.Parallel()
	fault := errors.New("a fault")
	for failures, least := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		for range 100 { // its jitter is drawn anew each time
			if got := retryDelay(failures, fault, nil); got < least || got > least+least/4 {
				t.Fatalf("after %d failures it comes back in %s", failures, got)
			}
		}
	}
	if got := retryDelay(10_000, fault, nil); got < 30*time.Second || got > 38*time.Second {
		t.Errorf("after 10,000 failures it comes back in %s", got)
	}
}

// A task of several jobs comes back when the first of them can go on.
func TestTheSoonerOfTwoDelaysCounts(t *testing.T) {
	t.Parallel()
	far, near, soon := SnoozeFor(errors.New("far"), time.Hour), SnoozeFor(errors.New("near"), time.Minute), Snooze(errors.New("soon"))
	for _, c := range []struct{ a, b, want error }{{nil, far, far}, {far, nil, far}, {far, near, near}, {near, far, near}, {far, soon, soon}, {soon, far, soon}, {nil, nil, nil}} {
		if got := EarlierSnooze(c.a, c.b); got != c.want { //nolint:errorlint // the very same
			t.Errorf("of %v and %v: %v", c.a, c.b, got)
		}
	}
}
