package holds

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
)

// memory knows positions that were found taken a moment ago.
type memory struct {
	mu    sync.Mutex // for those who look before they write
	known *lru.Cache[place, sighting]
}

// sighting is what is known of a position.
type sighting struct {
	until time.Time // taken until then; zero: not
	freed time.Time // when it was last given back, as far as this process knows
}

type place struct {
	campaignID uuid.UUID
	triangle.Position
}

const (
	// remembered is how long a position counts as taken without another look: as
	// long as the copies of boards that crowds are shown.
	remembered = time.Second
	// places bounds the memory: some 100 bytes each.
	places = 1 << 16
)

func newMemory() *memory {
	known, _ := lru.New[place, sighting](places) // fails only for a size of 0
	return &memory{known: known}
}

// note remembers a position that somebody found taken. It was looked at not
// before since, and was taken for remaining from then on at least. What has been
// given back since is not taken any more.
func (m *memory) note(p place, since time.Time, remaining time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.known.Get(p); ok && last.freed.After(since) {
		return
	}
	m.known.Add(p, sighting{until: since.Add(min(remaining, remembered))})
}

// forget lets a position that was given back be asked for again.
func (m *memory) forget(p place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known.Add(p, sighting{freed: time.Now()})
}

// among names the positions of an ask that are known to be taken.
func (m *memory) among(ask Ask) (gone []fault.Field) {
	for i, p := range ask.Positions {
		if last, ok := m.known.Get(place{ask.Job.CampaignID, p}); ok && time.Now().Before(last.until) {
			gone = append(gone, takenField(i, p))
		}
	}
	return gone
}

func takenField(i int, p triangle.Position) fault.Field {
	return fault.Field{Pointer: fmt.Sprintf("/positions/%d", i), Detail: fmt.Sprintf("position %d/%d is taken", p.Layer, p.Column)}
}
