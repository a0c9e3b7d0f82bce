package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// The pause doubles with each failure up to 30 s, and a quarter of it at most comes on top.
func TestATaskComesBackWhenItsErrorSaysOrAfterPausesThatDouble(t *testing.T) {
	t.Parallel()
	why, fault := errors.New("not due"), errors.New("a fault")
	put := fmt.Errorf("a handler: %w", SnoozeFor(why, 42*time.Minute))
	for _, row := range []struct {
		failures int
		err      error
		want     time.Duration
		jitter   bool
	}{
		{0, put, 42 * time.Minute, false}, {2, put, 42 * time.Minute, false},
		{0, SnoozeFor(why, -time.Hour), time.Second, true}, {0, Snooze(why), time.Second, true},
		{0, fault, time.Second, true}, {1, fault, 2 * time.Second, true}, {2, fault, 4 * time.Second, true}, {3, fault, 8 * time.Second, true},
		{4, fault, 16 * time.Second, true}, {5, fault, 30 * time.Second, true}, {6, fault, 30 * time.Second, true}, {10_000, fault, 30 * time.Second, true},
	} {
		most := row.want
		if row.jitter {
			most += row.want / 4
		}
		for range 100 { // its jitter is drawn anew each time
			if got := retryDelay(row.failures, row.err, nil); got < row.want || got > most {
				t.Fatalf("after %v and %d failures it comes back in %s", row.err, row.failures, got)
			}
		}
	}
	for _, err := range []error{put, Snooze(why)} {
		if !errors.Is(err, ErrSnoozed) || !errors.Is(err, why) || !isSnoozed(err) {
			t.Errorf("%v is a failure", err)
		}
	}
	if SnoozeFor(nil, time.Hour) != nil || Snooze(nil) != nil {
		t.Error("no error became one")
	}
}

// A task of several jobs comes back when the first of them can go on.
func TestTheSoonerOfTwoDelaysCounts(t *testing.T) {
	t.Parallel()
	delays := []error{SnoozeFor(errors.New("far"), time.Hour), Snooze(errors.New("soon")), fmt.Errorf("near: %w", SnoozeFor(errors.New("near"), time.Minute))}
	slices.SortFunc(delays, CompareSnoozes)
	if text := fmt.Sprint(delays); text != "[not now: soon near: not now: near not now: far]" {
		t.Errorf("in the order %s", text)
	}
}
