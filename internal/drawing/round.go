package drawing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

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
	if due := a.chain.DueAt(number); now.Before(due) {
		return nil, snoozed(causeBeacon, fmt.Sprintf("round %d of the beacon decides, and it is not due yet", number), now, due.Sub(now))
	}
	if round, err = a.fetch(ctx, number); err != nil {
		return nil, err
	}
	return round.Randomness[:], nil
}

// fetch gets a round from the relays and stores it.
func (a *attempt) fetch(ctx context.Context, number uint64) (beacon.Round, error) {
	round, err := a.ask(ctx, a.patience(), number)
	if err != nil {
		return round, a.unanswered(ctx, fmt.Sprintf("round %d of the beacon decides; it is due", number), a.chain.DueAt(number), err)
	}
	a.hit("draw.fetch")
	if err := a.storeRound(ctx, round); err != nil {
		return round, err
	}
	a.hit("draw.fetched")
	a.log.Info("draw has its round", "round", number)
	return round, nil
}

// patience bounds one question to relays: an attempt has time left to store
// the answer, or to say that there was none.
func (d *Drawer) patience() time.Duration { return d.limit / 4 }

// newestNumber stands for the newest round in the place of its number.
const newestNumber = 0

// ask asks the relays for a round, and verifies what they say once more.
func (a *attempt) ask(ctx context.Context, patience time.Duration, number uint64) (round beacon.Round, err error) {
	if a.options.Beacon == nil {
		return round, errNoBeacon
	}
	err = a.questions.ask(ctx, a.rules.Beacon.ChainHash, patience, func(ctx context.Context) (err error) {
		if number == newestNumber {
			round, err = a.options.Beacon.Latest(ctx, a.chain)
		} else {
			round, err = a.options.Beacon.Round(ctx, a.chain, number)
		}
		return err
	})
	if err != nil {
		return round, err
	}
	return a.chain.Verify(cmp.Or(number, round.Number), round.Signature)
}

// storeRound stores a round that has been verified. Nothing unverified is ever stored, from any source.
func (a *attempt) storeRound(ctx context.Context, verified beacon.Round) error {
	return a.fenced(ctx, func(tx pgx.Tx) error { return InsertRound(ctx, tx, a.rules.Beacon.ChainHash, verified) })
}

// unanswered is the wait for a round that no relay has given, and that was due at a time. what is
// said of the draw meanwhile. While others ask, it is half as long as the round is late.
func (a *attempt) unanswered(ctx context.Context, what string, due time.Time, reason error) error {
	if ctx.Err() != nil { // the attempt ends, or its claim is lost
		return context.Cause(ctx)
	}
	now, err := Now(ctx, a.db)
	if err != nil {
		return err
	}
	no, ok := errors.AsType[*notNow](reason)
	switch {
	case ok && no.away:
		return snoozed(causeBeacon, what+", and nobody is asked for it now: "+no.reason, now, no.after)
	case ok:
		return snoozed(causeBeacon, what+", and nobody is asked for it now: "+no.reason, now, clamp(now.Sub(due)/2, no.after, longestRetry))
	}
	a.log.Warn("no relay has given a round of the beacon; it is asked for again", "waits", what, "error", reason)
	return snoozed(causeBeacon, what+", and no relay has given it yet", now, retry(due, now))
}

const (
	// slow is how long a question to relays may take until they count as away, if it fails
	// or has not ended. A refused connection is much faster, and holds up nobody.
	slow = time.Second
	// besideRetry is the shortest wait for a draw that may not ask because others do.
	besideRetry = 250 * time.Millisecond
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

// refusedLocked returns why relays of a chain should not be asked now; nil: they may be.
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
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(q.running, cancel)() //nolint:contextcheck // the question ends with either
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

// ended notes what came of a question. Questions that were asked together are one failure.
func (q *questions) ended(one *question, err error, cut bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	delete(q.open, one)
	now, known := q.now(), q.away[one.chain]
	switch {
	case err != nil && cut:
	case err == nil, now.Sub(one.since) < slow, errors.Is(err, drand.ErrNotYet):
		delete(q.away, one.chain)
	case !one.since.Before(known.noted):
		wait := clamp(2*known.wait, firstRetry, longestRetry)
		q.away[one.chain] = outage{noted: now, until: now.Add(wait), wait: wait}
	}
}
