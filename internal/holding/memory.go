package holding

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"triprize/internal/fault"
	"triprize/internal/triangle"
)

// memory knows positions that were found taken a moment ago.
type memory struct {
	until *lru.Cache[place, time.Time]
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
	until, _ := lru.New[place, time.Time](places) // fails only for a size of 0
	return &memory{until: until}
}

// note remembers a taken position; remaining is how long it is held at most, 0 for one that is sold.
func (m *memory) note(p place, remaining time.Duration) {
	if remaining <= 0 || remaining > remembered {
		remaining = remembered
	}
	m.until.Add(p, time.Now().Add(remaining))
}

func (m *memory) forget(p place) { m.until.Remove(p) }

// among names the positions of an ask that are known to be taken.
func (m *memory) among(ask Ask) (gone []fault.Field) {
	for i, p := range ask.Positions {
		if until, ok := m.until.Get(place{ask.Job.CampaignID, p}); ok && time.Now().Before(until) {
			gone = append(gone, takenField(i, p))
		}
	}
	return gone
}

func takenField(i int, p triangle.Position) fault.Field {
	return fault.Field{Pointer: fmt.Sprintf("/positions/%d", i), Detail: fmt.Sprintf("position %d/%d is taken", p.Layer, p.Column)}
}
