package worker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	lockedFor  = 2 * time.Second
	lockedMost = 1 << 10
)

// lockedCampaigns are those whose jobs this process has put off lately, because they stayed locked:
// their jobs are tried once.
type lockedCampaigns struct {
	mu    sync.Mutex
	until map[uuid.UUID]time.Time
}

// note notes the campaigns of items that found them locked.
func (l *lockedCampaigns) note(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.until == nil {
		l.until = make(map[uuid.UUID]time.Time)
	}
	maps.DeleteFunc(l.until, func(_ uuid.UUID, until time.Time) bool { return now.After(until) })
	for _, it := range items {
		if _, known := l.until[it.CampaignID]; it.verdict == locked && (known || len(l.until) < lockedMost) {
			l.until[it.CampaignID] = now.Add(lockedFor)
		}
	}
}

// others returns the items whose campaigns are not known to be locked, and notes again those that are.
func (l *lockedCampaigns) others(items []*item) []*item {
	var known []*item
	others := slices.DeleteFunc(slices.Clone(items), func(it *item) bool {
		if !l.has(it.CampaignID) {
			return false
		}
		known = append(known, it)
		return true
	})
	l.note(known)
	return others
}

func (l *lockedCampaigns) has(id uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, known := l.until[id]
	return known && time.Now().Before(until)
}

// forget forgets the campaigns of items that found them free.
func (l *lockedCampaigns) forget(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.until) == 0 {
		return
	}
	for _, it := range items {
		if it.verdict != locked {
			delete(l.until, it.CampaignID)
		}
	}
}
