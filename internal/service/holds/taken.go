package holds

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/store/inventory"
)

// takenCache remembers positions that were found taken a moment ago.
type takenCache struct {
	mu    sync.Mutex // for those who look before they write
	known *lru.Cache[inventory.PositionID, sighting]
}

// sighting is what is known of a position.
type sighting struct {
	until time.Time // taken until then; zero: not
	freed time.Time // when it was last given back, as far as this process knows
}

const (
	// takenFor is how long a position counts as taken without another look: as long
	// as the copies of the positions that crowds are shown.
	takenFor = time.Second
	// takenMost bounds the cache: some 100 bytes each.
	takenMost = 1 << 16
)

func newTakenCache() *takenCache {
	known, _ := lru.New[inventory.PositionID, sighting](takenMost) // fails only for a size of 0
	return &takenCache{known: known}
}

// add remembers a position that somebody found taken. It was looked at not before
// since, and was taken for remaining from then on at least. What has been given
// back since is not taken any more.
func (c *takenCache) add(p inventory.PositionID, since time.Time, remaining time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.known.Get(p); ok && last.freed.After(since) {
		return
	}
	c.known.Add(p, sighting{until: since.Add(min(remaining, takenFor))})
}

// remove lets a position that was given back be asked for again.
func (c *takenCache) remove(p inventory.PositionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Add(p, sighting{freed: time.Now()})
}

// among names the positions of a request that are known to be taken.
func (c *takenCache) among(r Request) (taken []fault.Field) {
	for i, p := range r.Positions {
		at := inventory.PositionID{CampaignID: r.Job.CampaignID, Position: p}
		if last, ok := c.known.Get(at); ok && time.Now().Before(last.until) {
			taken = append(taken, inventory.TakenField("", i, p))
		}
	}
	return taken
}
