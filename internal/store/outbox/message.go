package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
)

// MaxJobs is the most jobs in one message. Accept puts all jobs of a kind in one
// message, so the setting accept.batch_size has the same bound.
const MaxJobs = 256

// Message delivers several jobs of one kind to a worker.
type Message struct {
	ID       uuid.UUID // also the id of its task in the queue
	Kind     job.Kind
	Delivery int // 1, and one more for each worker known to have died with these jobs
	Jobs     []job.Ref
	Traces   map[uuid.UUID]string // of jobs whose requests are in a trace; only in the first task of a message
}

// payload groups jobs by campaign: for one hot campaign that halves its size.
type payload struct {
	Delivery  int                       `json:"delivery"`
	Campaigns map[uuid.UUID][]uuid.UUID `json:"campaigns"`
	Traces    map[uuid.UUID]string      `json:"traces,omitempty"`
}

// Task returns the message as a task for the queue.
func (m Message) Task() (queue.Task, error) {
	p := payload{Delivery: m.Delivery, Campaigns: make(map[uuid.UUID][]uuid.UUID), Traces: m.Traces}
	for _, j := range m.Jobs {
		p.Campaigns[j.CampaignID] = append(p.Campaigns[j.CampaignID], j.ID)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return queue.Task{}, fmt.Errorf("outbox.Message.Task: %w", err)
	}
	return queue.Task{ID: m.ID, Kind: string(m.Kind), Payload: data}, nil
}

// MessageOf reads a message from a task. Its jobs are in the order of their ids,
// which is the order in which they were accepted.
func MessageOf(t queue.Task) (Message, error) {
	var p payload
	if err := json.Unmarshal(t.Payload, &p); err != nil {
		return Message{}, fmt.Errorf("outbox.MessageOf(%s): %w", t.ID, err)
	}
	m := Message{ID: t.ID, Kind: job.Kind(t.Kind), Delivery: p.Delivery, Traces: p.Traces}
	for campaign, jobs := range p.Campaigns {
		for _, id := range jobs {
			m.Jobs = append(m.Jobs, job.Ref{ID: id, CampaignID: campaign})
		}
	}
	slices.SortFunc(m.Jobs, func(a, b job.Ref) int { return uuidv7.Compare(a.ID, b.ID) })
	return m, nil
}

// Enqueue puts the task of one message in its queue.
func Enqueue(ctx context.Context, client *queue.Client, m Message) error {
	task, err := m.Task()
	if err != nil {
		return err
	}
	return client.Enqueue(ctx, task)
}
