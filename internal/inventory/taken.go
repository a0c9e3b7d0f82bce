package inventory

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
)

// takenCache caches positions that were found taken a moment ago.
type takenCache struct {
	mu    sync.Mutex // makes a read and the write after it one step
	known *lru.Cache[PositionID, lastSeen]
	now   func() time.Time // tests set it
}

// lastSeen is the last known state of a position.
type lastSeen struct {
	until  time.Time // taken until then; zero: not taken
	freed  time.Time // when this process last freed it
	userID string    // its user; empty: it is sold
}

const (
	// takenFor is how long a position counts as taken without another read. The API
	// shows copies of the positions that are up to as old.
	takenFor = time.Second
	// maxTaken bounds the cache: some 150 bytes each, and a user id.
	maxTaken = 1 << 16
)

func newTakenCache() *takenCache {
	known, _ := lru.New[PositionID, lastSeen](maxTaken) // fails only for a size of 0
	return &takenCache{known: known, now: time.Now}
}

// add caches that a position is taken: it was read at since or later, and was then
// taken for at least remaining. When it was freed after since, add does nothing.
func (c *takenCache) add(p PositionID, since time.Time, remaining time.Duration, userID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.known.Get(p); ok && last.freed.After(since) {
		return
	}
	c.known.Add(p, lastSeen{until: since.Add(min(remaining, takenFor)), userID: userID})
}

// update caches the state of a position that was read at since or later. A blocked one is not
// taken: an operator may unblock it at any process.
func (c *takenCache) update(f *StoredPosition, since time.Time) {
	switch {
	case f.State == Sold:
		c.add(f.PositionID, since, takenFor, "")
	case (f.State == Held || f.State == Reserved) && f.Remaining > 0: // else its deadline has passed meanwhile
		c.add(f.PositionID, since, f.Remaining, f.UserID)
	default:
		c.remove(f.PositionID)
	}
}

// remove caches that a position is free.
func (c *takenCache) remove(p PositionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Add(p, lastSeen{freed: c.now()})
}

// of returns which positions of a request are known to be taken. It returns none when one of them
// is the user's own: only Postgres knows of which hold or purchase, since the hold may have been
// bought meanwhile.
func (c *takenCache) of(r HoldRequest) (taken []int) {
	for i, p := range r.Positions {
		at := PositionID{CampaignID: r.Job.CampaignID, Position: p}
		last, ok := c.known.Get(at)
		if !ok || !c.now().Before(last.until) {
			continue
		}
		if last.userID != "" && last.userID == r.Job.UserID {
			return nil
		}
		taken = append(taken, i)
	}
	return taken
}

// precheck is what is known of a request before it waits for any lock.
type precheck struct {
	retry   bool // earlier is the job of its key
	earlier job.Accepted
	refusal error
	now     map[PositionID]*StoredPosition // by recheck; shared
}

// findRetries finds the requests whose idempotency key has a job already.
func (s *Holds) findRetries(ctx context.Context, requests []HoldRequest) ([]precheck, error) {
	jobs, found := make([]job.Request, len(requests)), make([]precheck, len(requests))
	for i, r := range requests {
		jobs[i] = r.Job
	}
	earlier, known, err := job.OfKeys(ctx, s.db, jobs)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		found[i] = precheck{retry: known[i], earlier: earlier[i]}
	}
	return found, nil
}

// recheck finds retries of requests for positions that are known to be taken, and reads these
// positions: another process may have freed them.
func (s *Holds) recheck(ctx context.Context, requests []HoldRequest) ([]precheck, error) {
	began := s.taken.now()
	found, err := s.findRetries(ctx, requests)
	if err != nil {
		return nil, err
	}
	now := make(map[PositionID]*StoredPosition)
	for i, r := range requests {
		found[i].now = now
		for _, p := range r.Positions {
			now[PositionID{CampaignID: r.Job.CampaignID, Position: p}] = nil
		}
	}
	read, err := find(ctx, s.db, slices.Collect(maps.Keys(now)))
	for _, f := range read {
		now[f.PositionID] = &f
		s.taken.update(&f, began)
	}
	return found, err
}

// precheck finds retries and refuses users over a limit. It looks up the keys last:
// when the hold of the same key already counts against the limit, the request is
// then known to be a retry.
func (s *Holds) precheck(ctx context.Context, requests []HoldRequest) ([]precheck, error) {
	campaigns := make(map[uuid.UUID]bool)
	for _, r := range requests {
		campaigns[r.Job.CampaignID] = true
	}
	f, err := s.readSnapshot(ctx, s.db, new(pgx.Batch), slices.Collect(maps.Keys(campaigns)), requests, nil)
	if err != nil {
		return nil, err
	}
	found, err := s.findRetries(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, r := range requests {
		// The transaction refuses impossible selections and a sale that is not open: its
		// refusals are recorded.
		if !found[i].retry && r.CheckSale(f.campaigns[r.Job.CampaignID], r.Job.CampaignID, "") == nil {
			found[i].refusal = f.checkUsage(r, s.settings)
		}
	}
	return found, nil
}
