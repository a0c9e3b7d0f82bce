package campaigncancel

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/drawrecord"
	"triprize/internal/store/job"
)

// stuckAfter is how long after its begin, or after its round was due, a draw is stuck. Triggers
// say the same, and that a void is announced 168 hours ahead.
const stuckAfter = 24 * time.Hour

// announcement is why a void waits: anybody may still bring the round.
type announcement struct{ now, voidsAt time.Time }

func (a *announcement) Error() string {
	return "the void of the draw is announced for " + a.voidsAt.UTC().Format(time.RFC3339) + "; until then the round of the beacon draws"
}

func (a *announcement) progress() *job.Progress {
	return &job.Progress{Waiting: &job.Waiting{Reason: a.Error(), RetryAt: a.voidsAt.UTC()}}
}

// wait is no longer than longestRetry: a job whose draw has come, or is void, says so soon.
func (a *announcement) wait() *Waiting {
	return &Waiting{Reason: a.Error(), After: min(a.voidsAt.Sub(a.now), longestRetry)}
}

// admitVoid returns nil if a draw under way may be voided now. With a beacon the operator could
// know the outcome, or keep it from its own system: so that draw is voided only when nobody has
// brought its round in all the time of an announcement, which it stores.
func admitVoid(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	s, err := drawrecord.StuckOf(ctx, tx, id)
	if err != nil {
		return err
	}
	stuckAt, what := s.StartedAt.Add(stuckAfter), "the draw began"
	if s.RoundDueAt != nil {
		stuckAt, what = s.RoundDueAt.Add(stuckAfter), "the round of the beacon was due"
	}
	switch {
	case s.RoundKnown:
		return fault.New(fault.StateConflict, "the round of the beacon is known: the winners follow from it, and the draw cannot be voided")
	case s.Now.Before(stuckAt):
		no := fault.New(fault.StateConflict, "the draw can be voided from %s on, 24 hours after %s", stuckAt.UTC().Format(time.RFC3339), what)
		no.RetryAt = stuckAt.UTC()
		return no
	case s.RoundDueAt == nil:
		return nil
	case s.VoidsAt == nil:
		at, err := drawrecord.AnnounceVoid(ctx, tx, id)
		if err != nil {
			return err
		}
		return &announcement{now: s.Now, voidsAt: at}
	case s.Now.Before(*s.VoidsAt):
		return &announcement{now: s.Now, voidsAt: *s.VoidsAt}
	}
	return nil
}
