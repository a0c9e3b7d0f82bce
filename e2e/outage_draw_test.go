//go:build failpoint

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// A draw that loses its database at any of its writes succeeds after it has come back.
func TestPostgresLostInTheMiddleOfADraw(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Private: true})
	for _, step := range []string{"draw.claimed", "draw.record"} {
		id := drawable(s, false)
		var once sync.Once
		lost := make(chan error, 1)
		remove := failpoint.Set(step, id.String(), func() {
			once.Do(func() { lost <- s.Stack.Postgres.RestartAfter(context.Background(), 0) })
		})
		t.Cleanup(remove)
		fixture.SellOut(t, s.DB, id)
		if err := <-lost; err != nil {
			t.Fatal(fmt.Errorf("at %s: %w", step, err))
		}
		s.AwaitDrawn(id)
		expectRecordsOnce(s, id)
	}
	if s.Draws() != 2 {
		t.Errorf("%d draws", s.Draws())
	}
}
