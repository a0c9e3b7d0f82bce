package drawing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/drawing/drand"
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
	round, ok, err := roundOf(ctx, a.db, a.chain, number)
	if err != nil {
		return nil, err
	}
	if ok {
		return round.Randomness[:], nil
	}
	now, err := Now(ctx, a.db)
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
	now, err := Now(ctx, a.db)
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

const (
	// slow is how long a question to relays may take until they count as away, if it fails
	// or has not ended. A refused connection is much faster, and holds up nobody.
	slow = time.Second
	// besideRetry is the shortest wait for a draw that may not ask because others do.
	besideRetry = 250 * time.Millisecond
	// mostAway is for how many chains it is known that their relays are away.
	mostAway = 16
)

// errEnded is why a question ended without an answer when its worker shuts down.
var errEnded = errors.New("this worker shuts down")

// notNow is why relays are not asked now, and when they may be.
type notNow struct {
	reason string
	after  time.Duration
	away   bool // they are known not to answer; otherwise others ask, or the worker shuts down
}

// Error returns the reason.
func (n *notNow) Error() string {
	return fmt.Sprintf("drawing: not asked for %s: %s", n.after, n.reason)
}

// questions bounds what a worker asks relays, so that relays that hang do not hold the
// slots of draws that need none. Few are asked at once. When a question fails and took
// long, the relays of its chain are away for a time that grows; after it one draw asks,
// and the others wait for what comes of that.
type questions struct {
	running context.Context //nolint:containedctx // all questions end with it when the worker shuts down
	end     context.CancelFunc
	now     func() time.Time // of this process: it is compared with itself only

	mu   sync.Mutex
	free int // how many may be asked now
	open map[*question]struct{}
	away map[fairdraw.Hash]outage
}

// question is one to the relays of a chain.
type question struct {
	chain fairdraw.Hash
	since time.Time
}

// outage says that the relays of a chain are away.
type outage struct {
	noted, until time.Time
	wait         time.Duration
}

func newQuestions(atOnce int) *questions {
	q := &questions{now: time.Now, free: max(atOnce, 1), open: make(map[*question]struct{}), away: make(map[fairdraw.Hash]outage)}
	q.running, q.end = context.WithCancel(context.Background())
	return q
}

// EndQuestions ends the questions to relays that are under way, and lets
// none begin: a worker that shuts down waits for nobody's answer. A drawn campaign
// needs none.
func (d *Drawer) EndQuestions() { d.questions.end() }

// asking returns a context for a question: it ends with ctx, after a time, or when the
// worker shuts down.
func (q *questions) asking(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	asking, cancel := context.WithTimeout(ctx, patience)
	stop := context.AfterFunc(q.running, cancel)
	return asking, func() {
		stop()
		cancel()
	}
}

// refused returns why relays of a chain should not be asked now; nil: they may be.
func (q *questions) refused(chain fairdraw.Hash) *notNow {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refusedLocked(chain)
}

func (q *questions) refusedLocked(chain fairdraw.Hash) *notNow {
	if q.running.Err() != nil {
		return &notNow{reason: errEnded.Error(), after: besideRetry}
	}
	const silent = "its relays do not answer"
	now := q.now()
	known, away := q.away[chain]
	if away && now.Before(known.until) {
		return &notNow{reason: silent, after: known.until.Sub(now), away: true}
	}
	for other := range q.open {
		if other.chain == chain && (away || now.Sub(other.since) >= slow) {
			return &notNow{reason: silent, after: max(known.wait, firstRetry), away: true}
		}
	}
	if q.free == 0 {
		return &notNow{reason: "other draws ask the relays now", after: besideRetry}
	}
	return nil
}

// ask asks the relays of a chain within a time. A *notNow says that they were not asked.
func (q *questions) ask(ctx context.Context, chain fairdraw.Hash, patience time.Duration, do func(context.Context) error) error {
	one, err := q.begin(chain)
	if err != nil {
		return err
	}
	asking, cancel := q.asking(ctx, patience)
	defer cancel()
	err = do(asking)
	cut := ctx.Err() != nil || q.running.Err() != nil // it says nothing about the relays
	q.ended(one, err, cut)
	if err != nil && q.running.Err() != nil {
		return &notNow{reason: errEnded.Error(), after: besideRetry}
	}
	return err
}

func (q *questions) begin(chain fairdraw.Hash) (*question, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if no := q.refusedLocked(chain); no != nil {
		return nil, no
	}
	one := &question{chain: chain, since: q.now()}
	q.free--
	q.open[one] = struct{}{}
	return one, nil
}

// ended notes what came of a question.
func (q *questions) ended(one *question, err error, cut bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	delete(q.open, one)
	now := q.now()
	switch {
	case err != nil && cut:
	case err == nil, now.Sub(one.since) < slow, errors.Is(err, drand.ErrNotYet):
		delete(q.away, one.chain)
	default:
		q.note(one, now)
	}
}

// note notes that the relays of a question's chain are away. Questions that were asked
// together are one failure.
func (q *questions) note(one *question, now time.Time) {
	known, away := q.away[one.chain]
	if away && one.since.Before(known.noted) {
		return
	}
	if !away && len(q.away) >= mostAway { // it is found out again
		for chain := range q.away {
			delete(q.away, chain)
			break
		}
	}
	wait := clamp(2*known.wait, firstRetry, longestRetry)
	q.away[one.chain] = outage{noted: now, until: now.Add(wait), wait: wait}
}
