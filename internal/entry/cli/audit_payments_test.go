package cli

import (
	"testing"
	"time"
)

func TestYesterdayIsTheLastDayOfUTCThatIsOver(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{"2026-11-02T00:00:00Z": "2026-11-01", "2026-11-02T08:59:59+09:00": "2026-10-31", "2026-11-02T23:59:59Z": "2026-11-01"} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		if begin, end := yesterday(at); begin.Format(time.RFC3339) != want+"T00:00:00Z" || end.Sub(begin) != 24*time.Hour {
			t.Errorf("yesterday of %s: %s to %s", now, begin, end)
		}
	}
}
