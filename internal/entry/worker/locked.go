package worker

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	lockedFor  = 2 * time.Second
	lockedMost = 10_000
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

// others returns the items whose campaigns are not known to be locked, and those whose campaigns are: it
// notes these again.
func (l *lockedCampaigns) others(items []*item) (others, known []*item) {
	for _, it := range items {
		if l.has(it.CampaignID) {
			known = append(known, it)
		} else {
			others = append(others, it)
		}
	}
	l.note(known)
	return others, known
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
