package holds

import (
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/store/inventory"
)

// takenCache remembers positions that were found taken a moment ago.
type takenCache struct {
	mu    sync.Mutex // makes a look and the write after it one step
	known *lru.Cache[inventory.PositionID, sighting]
	now   func() time.Time // tests set it
}

// sighting is what is known of a position.
type sighting struct {
	until  time.Time // taken until then; zero: not taken
	freed  time.Time // when this process last saw it given back
	userID string    // whose hold has it; empty: none
	holdID uuid.UUID
}

// taking says that a position is taken: for how long at least, and by whose hold, if it is one.
type taking struct {
	remaining time.Duration
	userID    string
	holdID    uuid.UUID
}

func takingOf(p *inventory.Found) taking {
	t := taking{remaining: p.Remaining}
	if p.State == inventory.Held && p.HoldID != nil {
		t.userID, t.holdID = p.UserID, *p.HoldID
	}
	return t
}

const (
	// takenFor is how long a position counts as taken without another read. The API
	// shows copies of the positions that are up to as old.
	takenFor = time.Second
	// takenMost bounds the cache: some 150 bytes each, and a user id.
	takenMost = 1 << 16
)

func newTakenCache() *takenCache {
	known, _ := lru.New[inventory.PositionID, sighting](takenMost) // fails only for a size of 0
	return &takenCache{known: known, now: time.Now}
}

// add remembers that a position is taken: it was read at since or later, and was then
// taken for at least t.remaining. When it was given back after since, add does nothing.
func (c *takenCache) add(p inventory.PositionID, since time.Time, t taking) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.known.Get(p); ok && last.freed.After(since) {
		return
	}
	c.known.Add(p, sighting{until: since.Add(min(t.remaining, takenFor)), userID: t.userID, holdID: t.holdID})
}

// remove forgets that a position is taken, because it was given back.
func (c *takenCache) remove(p inventory.PositionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Add(p, sighting{freed: c.now()})
}

// among returns the positions of a request that are known to be taken. own is a hold of the
// same user that has one of them; empty: none does.
func (c *takenCache) among(r Request) (taken []fault.Field, own string) {
	for i, p := range r.Positions {
		at := inventory.PositionID{CampaignID: r.Job.CampaignID, Position: p}
		last, ok := c.known.Get(at)
		if !ok || !c.now().Before(last.until) {
			continue
		}
		taken = append(taken, inventory.TakenField("", i, p))
		if own == "" && last.userID != "" && last.userID == r.Job.UserID {
			own = last.holdID.String()
		}
	}
	return taken, own
}
