package scheduler

import (
	"context"
	"testing"
	"time"
)

// The interval is longer than any test.
func TestASweepThatHasMoreToDoRunsAgainAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it waits for this only if it fails
	defer cancel()
	runs := 0
	repeat(ctx, func() time.Duration {
		if runs++; runs == 3 {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		return map[bool]time.Duration{false: 24 * time.Hour}[runs < 3]
	})
	if runs != 3 {
		t.Errorf("it ran %d times", runs)
	}
}
