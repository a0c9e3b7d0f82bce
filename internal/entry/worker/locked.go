package worker

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"triprize/internal/store/job"
)

// lockedFor is how long it is remembered that jobs of a campaign were given back.
const lockedFor = time.Second

// locked bounds the cost of jobs that are locked for long: their tasks keep at most half of
// the slots of a kind. Further ones go back to the queue, which delivers them again after
// a second or two; for a second, those of the same campaigns do so without a try.
type locked struct {
	kept *semaphore.Weighted // slots

	mu    sync.Mutex
	until map[uuid.UUID]time.Time // by campaign, some of them in the past
}

func newLocked(kept int) *locked {
	return &locked{kept: semaphore.NewWeighted(int64(kept)), until: make(map[uuid.UUID]time.Time)}
}

// note remembers that jobs were given back.
func (l *locked) note(items []*item, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, until := range l.until {
		if until.Before(now) {
			delete(l.until, id)
		}
	}
	for _, it := range items {
		l.until[it.CampaignID] = now.Add(lockedFor)
	}
}

// has tells whether jobs were given back a moment ago of all the campaigns of these.
func (l *locked) has(jobs []job.Ref, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range jobs {
		if !l.until[ref.CampaignID].After(now) {
			return false
		}
	}
	return true
}

// keptSlot is the right of one task to keep its slot although its jobs are locked.
type keptSlot struct {
	locked *locked
	has    bool
}

// keep reports whether the task may keep its slot.
func (s *keptSlot) keep() bool {
	s.has = s.has || s.locked.kept.TryAcquire(1)
	return s.has
}

func (s *keptSlot) release() {
	if s.has {
		s.locked.kept.Release(1)
	}
}

// blocked tells whether all jobs were put off so often that their rows are locked for
// long, and not by another batch.
func blocked(items []*item) bool {
	for _, it := range items {
		if it.putOff < walletAfter {
			return false
		}
	}
	return true
}
