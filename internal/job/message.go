package job

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/queue"
)

// MaxJobs is the most jobs in one message. Accept puts all jobs of a kind in one
// message, so a batch of accepted requests has the same bound.
const MaxJobs = 256

// Message delivers several jobs of one kind to a worker. It is a row of the outbox.
type Message struct {
	ID       uuid.UUID // also the id of its task in the queue
	Kind     Kind
	Delivery int // 1, and one more for each worker known to have died with these jobs
	Jobs     []Ref

	// Of the job of Insert; not in its task.
	By   By
	From Origin
}

// payload groups jobs by campaign: for one hot campaign that halves its size.
type payload struct {
	Delivery  int                       `json:"delivery"`
	Campaigns map[uuid.UUID][]uuid.UUID `json:"campaigns"`
	Traces    map[uuid.UUID]string      `json:"traces,omitempty"` // of jobs whose traces are recorded
}

// Task returns the message as a task for the queue.
func (m Message) Task() queue.Task {
	p := payload{Delivery: m.Delivery, Campaigns: make(map[uuid.UUID][]uuid.UUID)}
	for _, j := range m.Jobs {
		p.Campaigns[j.CampaignID] = append(p.Campaigns[j.CampaignID], j.ID)
	}
	for id, trace := range Traces(m.Jobs) {
		if p.Traces == nil {
			p.Traces = make(map[uuid.UUID]string)
		}
		p.Traces[id] = trace
	}
	data, err := json.Marshal(p)
	if err != nil { // ids and texts
		panic(err)
	}
	return queue.Task{ID: m.ID, Kind: string(m.Kind), Payload: data}
}

// Tasks returns the tasks of messages.
func Tasks(messages []Message) []queue.Task {
	tasks := make([]queue.Task, len(messages))
	for i, m := range messages {
		tasks[i] = m.Task()
	}
	return tasks
}

// MessageOf reads a message from a task. Its jobs are in the order of their ids,
// which is the order in which they were accepted.
func MessageOf(t queue.Task) (Message, error) {
	var p payload
	if err := json.Unmarshal(t.Payload, &p); err != nil {
		return Message{}, fmt.Errorf("job.MessageOf(%s): %w", t.ID, err)
	}
	m := Message{ID: t.ID, Kind: Kind(t.Kind), Delivery: p.Delivery}
	for campaign, jobs := range p.Campaigns {
		for _, id := range jobs {
			m.Jobs = append(m.Jobs, Ref{ID: id, CampaignID: campaign, Trace: p.Traces[id]})
		}
	}
	slices.SortFunc(m.Jobs, func(a, b Ref) int { return uuidv7.Compare(a.ID, b.ID) })
	return m, nil
}
