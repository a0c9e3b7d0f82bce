package drawing_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize/internal/drawing"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// deadlines note how long each question may take.
type deadlines struct {
	db    *pgxpool.Pool
	takes map[string]time.Duration
}

func (d deadlines) note(ctx context.Context, question string) {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(time.Hour)
	}
	d.takes[question] = time.Until(until)
}

func (d deadlines) Round(ctx context.Context, _ beacon.Chain, _ uint64) (beacon.Round, error) {
	d.note(ctx, "round")
	return beacon.Round{}, errAway
}

func (d deadlines) Latest(ctx context.Context, chain beacon.Chain) (beacon.Round, error) {
	d.note(ctx, "latest")
	return newest(ctx, d.db, chain)
}

// After its question an attempt has time left to store the answer, or to say that there was none.
func TestNoQuestionTakesTheWholeAttempt(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s, d := newSigner(t), deadlines{db, make(map[string]time.Duration)}
	ref := fixture.SellOut(t, db, withBeacon(t, db, s))
	limit := 8 * time.Second // short, so that no other bound is shorter than its part
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: limit}, drawing.DrawerOptions{Beacon: d}, servers.Logger(t))
	servers.Eventually(t, "all is asked", func() bool {
		if _, err := drawer.Run(t.Context(), ref); err == nil {
			t.Error("it was drawn")
		}
		clock.MoveOn(time.Minute)
		return len(d.takes) == 2
	})
	for question, takes := range d.takes {
		if takes > limit/4 {
			t.Errorf("%s: a question may take %s of the %s that an attempt has", question, takes, limit)
		}
	}
}
