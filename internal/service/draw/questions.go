package draw

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"triprize.example/draw/fairdraw"
	"triprize/internal/platform/drand"
)

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
func (n *notNow) Error() string { return fmt.Sprintf("draw: not asked for %s: %s", n.after, n.reason) }

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
