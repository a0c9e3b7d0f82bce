package job

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/platform/queue"
)

// MaxRing is the most jobs one ring calls for. An accept makes one ring of all
// jobs of a kind, so accept.batch_size has the same bound.
const MaxRing = 256

// Ring is one call to workers, for a bundle of jobs of one kind.
type Ring struct {
	ID     uuid.UUID
	Kind   Kind
	Number int // which delivery of these jobs it is, so far as is known: it grows when a worker dies with them
	Jobs   []Ref
}

// payload groups jobs by campaign: on a hot campaign that halves it.
type payload struct {
	Number    int                       `json:"number"`
	Campaigns map[uuid.UUID][]uuid.UUID `json:"campaigns"`
}

// Task returns the ring as a task for the queue.
func (r Ring) Task() (queue.Task, error) {
	p := payload{Number: r.Number, Campaigns: make(map[uuid.UUID][]uuid.UUID)}
	for _, j := range r.Jobs {
		p.Campaigns[j.CampaignID] = append(p.Campaigns[j.CampaignID], j.ID)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return queue.Task{}, fmt.Errorf("job.Ring.Task: %w", err)
	}
	return queue.Task{ID: r.ID, Kind: string(r.Kind), Payload: data}, nil
}

// RingOf reads a ring from a task; its jobs come in the order of their ids,
// which is the order in which they were accepted.
func RingOf(t queue.Task) (Ring, error) {
	var p payload
	if err := json.Unmarshal(t.Payload, &p); err != nil {
		return Ring{}, fmt.Errorf("job.RingOf(%s): %w", t.ID, err)
	}
	r := Ring{ID: t.ID, Kind: Kind(t.Kind), Number: p.Number}
	for campaign, jobs := range p.Campaigns {
		for _, id := range jobs {
			r.Jobs = append(r.Jobs, Ref{ID: id, CampaignID: campaign})
		}
	}
	slices.SortFunc(r.Jobs, func(a, b Ref) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return r, nil
}
