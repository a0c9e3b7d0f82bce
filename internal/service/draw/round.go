package draw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"triprize.example/draw/beacon"
	"triprize/internal/store/drawrecord"
)

// errNoBeacon is why there is no round where no relay is configured.
var errNoBeacon = errors.New("this worker has no relays configured")

// await returns the randomness of the round in the freeze record; nil without a beacon.
// While the round is not due, or no relay has it, the draw waits: nothing replaces it.
func (a *attempt) await(ctx context.Context) ([]byte, error) {
	if a.frozen.Round == nil {
		return nil, nil
	}
	number := *a.frozen.Round
	round, ok, err := drawrecord.RoundOf(ctx, a.db, a.chain, number)
	if err != nil {
		return nil, err
	}
	if ok {
		return round.Randomness[:], nil
	}
	now, err := drawrecord.Now(ctx, a.db)
	if err != nil {
		return nil, err
	}
	due := a.chain.DueAt(number)
	if now.Before(due) {
		return nil, notDue(number, due, now)
	}
	if round, err = a.fetch(ctx, number); err != nil {
		return nil, err
	}
	return round.Randomness[:], nil
}

// fetch gets a round from the relays and stores it.
func (a *attempt) fetch(ctx context.Context, number uint64) (round beacon.Round, err error) {
	err = errNoBeacon
	if a.options.Beacon != nil {
		err = a.questions.ask(ctx, a.rules.Beacon.ChainHash, a.patience(), func(ctx context.Context) (err error) {
			round, err = a.options.Beacon.Round(ctx, a.chain, number)
			return err
		})
	}
	if err == nil && round.Number != number {
		err = fmt.Errorf("asked for round %d, got round %d: %w", number, round.Number, beacon.ErrSignature)
	}
	if err == nil {
		round, err = a.chain.Verify(number, round.Signature)
	}
	if err != nil {
		return round, a.notServed(ctx, number, err)
	}
	a.hit("draw.fetch")
	if err := a.keepRound(ctx, round); err != nil {
		return round, err
	}
	a.hit("draw.fetched")
	a.log.Info("draw has its round", "round", number)
	return round, nil
}

// patience bounds one question to relays: an attempt has time left to store
// the answer, or to say that there was none.
func (d *Drawer) patience() time.Duration { return d.limit / 4 }

// notServed is the wait for a round that is due, and that nobody has given.
func (a *attempt) notServed(ctx context.Context, number uint64, reason error) error {
	if err := ctx.Err(); err != nil { // the attempt ends, or its claim is lost
		return context.Cause(ctx)
	}
	now, err := drawrecord.Now(ctx, a.db)
	if err != nil {
		return err
	}
	due := a.chain.DueAt(number)
	if no, ok := errors.AsType[*notNow](reason); ok {
		return notAsked(number, no, due, now)
	}
	a.log.Warn("no relay has given the round that decides; it is asked for again", "round", number, "error", reason)
	return waiting(causeBeacon, fmt.Sprintf("round %d of the beacon decides; it is due, and no relay has given it yet", number), now, retry(due, now))
}

// notAsked is the wait for a round that is due, and that nobody is asked for now. While
// others ask, it is half as long as the round is late.
func notAsked(number uint64, no *notNow, due, now time.Time) *Waiting {
	after := no.after
	if !no.away {
		after = clamp(now.Sub(due)/2, after, longestRetry)
	}
	return waiting(causeBeacon, fmt.Sprintf("round %d of the beacon decides; it is due, and nobody is asked for it now: %s", number, no.reason), now, after)
}
