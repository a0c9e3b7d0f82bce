package worker

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/outbox"
)

const (
	// parkedMost is how many messages without a campaign's place may wait for the next look;
	// the sweep lost-jobs finds any more.
	parkedMost = 1 << 14
	// lockedMost is how many campaigns are known to be locked at a time.
	lockedMost = 1 << 10
)

// parking knows the campaigns that stay locked, and the messages whose jobs wait for them.
// It keeps ids only: the jobs are queued in Postgres, and their tasks have left the queue.
type parking struct {
	mu        sync.Mutex
	campaigns map[uuid.UUID]*lockedCampaign
	fresh     []uuid.UUID // messages that were parked since the last look
	wake      chan struct{}
}

// lockedCampaign is an episode in which a campaign stays locked.
type lockedCampaign struct {
	since  time.Time
	warned bool
	parked map[uuid.UUID]int // jobs, by message
}

func (c *lockedCampaign) jobs() (n int) {
	for _, jobs := range c.parked {
		n += jobs
	}
	return n
}

func newParking() *parking {
	return &parking{campaigns: make(map[uuid.UUID]*lockedCampaign), wake: make(chan struct{}, 1)}
}

// has tells whether a campaign is known to be locked.
func (p *parking) has(id uuid.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.campaigns[id] != nil
}

// count returns how many campaigns are known to be locked.
func (p *parking) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.campaigns)
}

// empty tells whether there is nothing to look after.
func (p *parking) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.campaigns) == 0 && len(p.fresh) == 0
}

// note notes that a campaign stays locked.
func (p *parking) note(id uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.campaigns[id] == nil && len(p.campaigns) < lockedMost {
		p.campaigns[id] = &lockedCampaign{since: time.Now(), parked: make(map[uuid.UUID]int)}
	}
	p.signal()
}

// park keeps messages for the next look.
func (p *parking) park(messages ...uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = append(p.fresh, messages[:min(len(messages), max(parkedMost-len(p.fresh), 0))]...)
	p.signal()
}

func (p *parking) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// locked returns the campaigns that are known to be locked.
func (p *parking) locked() []uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(p.campaigns))
	for id := range p.campaigns {
		ids = append(ids, id)
	}
	return ids
}

// free forgets campaigns that are free again and returns their episodes. Their messages wait
// for the rest of this look.
func (p *parking) free(ids []uuid.UUID) map[uuid.UUID]*lockedCampaign {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := make(map[uuid.UUID]*lockedCampaign)
	for _, id := range ids {
		c := p.campaigns[id]
		if c == nil {
			continue
		}
		over[id] = c
		delete(p.campaigns, id)
		for message := range c.parked {
			p.fresh = append(p.fresh, message)
		}
	}
	return over
}

// take returns the messages that are to be regrouped, in the order of their age: those
// without a place, and those that have room for the jobs of others.
func (p *parking) take() []uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fresh) == 0 {
		return nil
	}
	ids := p.fresh
	p.fresh = nil
	for _, c := range p.campaigns {
		for id, jobs := range c.parked {
			if jobs < outbox.MaxJobs {
				ids = append(ids, id)
				delete(c.parked, id)
			}
		}
	}
	slices.SortFunc(ids, uuidv7.Compare)
	return ids
}

// place keeps messages of one campaign each with their campaigns, and returns those whose
// campaigns are not locked.
func (p *parking) place(messages []outbox.Message) (free []outbox.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		if c := p.campaigns[m.Jobs[0].CampaignID]; c != nil {
			c.parked[m.ID] = len(m.Jobs)
		} else {
			free = append(free, m)
		}
	}
	return free
}

// placed returns the messages that are with their campaigns.
func (p *parking) placed() (ids []uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.campaigns {
		for id := range c.parked {
			ids = append(ids, id)
		}
	}
	return ids
}

// lasting returns campaigns that have been locked for so long and that nobody was warned
// of, most of them at most, and each once.
func (p *parking) lasting(long time.Duration, most int) map[uuid.UUID]*lockedCampaign {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := make(map[uuid.UUID]*lockedCampaign)
	for id, c := range p.campaigns {
		if !c.warned && len(found) < most && time.Since(c.since) >= long {
			c.warned = true
			found[id] = c
		}
	}
	return found
}
