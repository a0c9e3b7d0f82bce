package httpconn

import (
	"testing"
	"time"
)

func TestWhatIsMovedMakesUpForTheTimeThatItTook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waited time.Duration
		moved  int
		left   time.Duration
	}{
		"nothing":           {3 * time.Second, 0, 5 * time.Second},
		"too little":        {3 * time.Second, minRate, 6 * time.Second},
		"just enough":       {3 * time.Second, 3 * minRate, 8 * time.Second},
		"more":              {time.Second, 2 * minRate, 9 * time.Second},
		"no more than all":  {time.Second, 100 * minRate, 10 * time.Second},
		"nothing, too long": {9 * time.Second, 0, -time.Second},
	} {
		a := slack{limit: 10 * time.Second, left: 8 * time.Second}
		if a.use(c.waited, c.moved); a.left != c.left {
			t.Errorf("%s: %s are left, want %s", name, a.left, c.left)
		}
	}
}
