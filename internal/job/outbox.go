package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
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

// lockMessages locks messages $1 uuid[] in the order of their ids, as every statement that changes several of them
// does. It returns an array: a join would read the whole backlog if the outbox was analysed while it was empty.
const lockMessages = `ARRAY(SELECT id FROM outbox_messages WHERE id = ANY($1) ORDER BY id FOR UPDATE)`

// DeleteMessages deletes messages whose tasks are done, unless one of their jobs is still queued: a task
// may have named others.
func DeleteMessages(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	_, err := db.Exec(ctx, `
		DELETE FROM outbox_messages m WHERE id = ANY(`+lockMessages+`)
		  AND NOT EXISTS (SELECT FROM unnest(m.jobs) AS i (id)
			CROSS JOIN LATERAL (SELECT state, purchase_id FROM jobs WHERE id = i.id OFFSET 0) j
			WHERE j.state = 'queued' AND j.purchase_id IS NULL)`, ids)
	return fault.At(err, "job.DeleteMessages")
}

// markSeen records that the tasks of messages are waiting in the queue now.
func markSeen(ctx context.Context, db postgres.DB, ids []uuid.UUID) error {
	_, err := db.Exec(ctx, `UPDATE outbox_messages SET seen_at = clock_timestamp() WHERE id = ANY(`+lockMessages+`)`, ids)
	return fault.At(err, "job.markSeen")
}

// replaceMessages deletes messages and puts those of their jobs that are still queued into new
// messages, which it returns; on demand one campaign in each of those that were delivered before: their jobs are
// tried together, and wait for a campaign if it is one. The caller enqueues the new ones after the commit.
// Two calls at once are safe: only one of them can delete a message.
//
// The delivery grows only for orphaned, a subset of ids: a worker had their jobs
// and died. A task that was never enqueued, or that Redis has lost, does not
// count against its jobs.
func replaceMessages(ctx context.Context, tx pgx.Tx, ids, orphaned []uuid.UUID, byCampaign bool) (messages []Message, err error) {
	rows, err := tx.Query(ctx, `
		WITH gone AS (DELETE FROM outbox_messages WHERE id = ANY(`+lockMessages+`)
		              RETURNING kind, delivery + (id = ANY(coalesce($2::uuid[], '{}')))::int AS delivery, jobs)
		SELECT g.kind, g.delivery, j.id, coalesce(j.campaign_id, '00000000-0000-0000-0000-000000000000'), coalesce(j.traceparent, '')
		FROM gone g
		CROSS JOIN LATERAL unnest(g.jobs) AS i (id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, traceparent, state, purchase_id FROM jobs WHERE id = i.id) j
		WHERE j.state = 'queued' AND j.purchase_id IS NULL
		ORDER BY g.kind, g.delivery, CASE WHEN $3 AND g.delivery > 1 THEN j.campaign_id END, j.id`, ids, orphaned, byCampaign)
	if err != nil {
		return nil, fault.At(err, "job.replaceMessages")
	}
	var kind Kind
	var delivery int
	var ref Ref
	var trace string
	_, err = pgx.ForEachRow(rows, []any{&kind, &delivery, &ref.ID, &ref.CampaignID, &trace}, func() error {
		last := len(messages) - 1
		if last < 0 || messages[last].Kind != kind || messages[last].Delivery != delivery || len(messages[last].Jobs) == MaxJobs ||
			kind == KindDraw || // a draw waits by itself
			byCampaign && delivery > 1 && messages[last].Jobs[0].CampaignID != ref.CampaignID {
			messages = append(messages, Message{ID: uuidv7.New(), Kind: kind, Delivery: delivery})
			last++
		}
		messages[last].Jobs = append(messages[last].Jobs, ref.In(trace))
		return nil
	})
	if err != nil || len(messages) == 0 {
		return nil, fault.At(err, "job.replaceMessages")
	}
	var b pgx.Batch
	for _, m := range messages {
		ids := make([]uuid.UUID, len(m.Jobs))
		for i, j := range m.Jobs {
			ids[i] = j.ID
		}
		b.Queue(`INSERT INTO outbox_messages (id, kind, delivery, jobs) VALUES ($1, $2, $3, $4)`, m.ID, m.Kind, m.Delivery, ids)
	}
	return messages, fault.At(tx.SendBatch(ctx, &b).Close(), "job.replaceMessages")
}

// Snooze replaces a message by one for each campaign, for those of its jobs that are still queued. They
// have no task: they wait until [Resume] finds their campaign free. Those whose wallet is locked, and not their
// campaign, also wait for about a quarter of their age, 10 s at most: retries would fail every second.
// It is one statement, so each job is in a message at any time. When the message is gone, others have its jobs,
// and nothing changes.
func Snooze(ctx context.Context, db postgres.DB, id uuid.UUID, wallets []uuid.UUID) error {
	_, err := db.Exec(ctx, `
		WITH gone AS (DELETE FROM outbox_messages WHERE id = $1 RETURNING kind, delivery, jobs)
		INSERT INTO outbox_messages (id, kind, delivery, jobs, waits_for, seen_at)
		SELECT gen_random_uuid(), g.kind, g.delivery, array_agg(j.id ORDER BY j.id), j.campaign_id, clock_timestamp() + b.backoff * interval '1 second'
		FROM gone g
		CROSS JOIN LATERAL unnest(g.jobs) AS i (id)
		CROSS JOIN LATERAL (SELECT id, campaign_id, state, purchase_id, accepted_at FROM jobs WHERE id = i.id OFFSET 0) j
		CROSS JOIN LATERAL (SELECT CASE WHEN j.id = ANY($2) -- in steps, so that jobs of about an age share a message
			THEN least(2 ^ floor(log(2, greatest(extract(epoch FROM clock_timestamp() - j.accepted_at), 1))) / 4, 10) ELSE 0 END AS backoff) b
		WHERE j.state = 'queued' AND j.purchase_id IS NULL
		GROUP BY g.kind, g.delivery, j.campaign_id, b.backoff`, id, wallets)
	return fault.At(err, "job.Snooze")
}

// FindAwaited returns the campaigns that messages wait for, at most limit, and the time
// by the database's clock. It reads one entry of the index for each.
func FindAwaited(ctx context.Context, db postgres.DB, limit int) (ids []uuid.UUID, now time.Time, err error) {
	if err := db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return nil, now, fault.At(err, "job.FindAwaited")
	}
	ids, err = postgres.Collect(ctx, db, pgx.RowTo[uuid.UUID], `
		WITH RECURSIVE awaited (id) AS (
			(SELECT waits_for FROM outbox_messages WHERE waits_for IS NOT NULL ORDER BY waits_for LIMIT 1)
			UNION ALL
			SELECT (SELECT m.waits_for FROM outbox_messages m WHERE m.waits_for > a.id ORDER BY m.waits_for LIMIT 1)
			FROM awaited a WHERE a.id IS NOT NULL)
		SELECT id FROM awaited WHERE id IS NOT NULL LIMIT $1`, limit)
	return ids, now, fault.At(err, "job.FindAwaited")
}

// countMost bounds how many messages are counted.
const countMost = 10_000

// CountAwaiting returns how many jobs wait for a campaign, of its countMost oldest messages.
func CountAwaiting(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (jobs int, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce(sum(cardinality(jobs)), 0) FROM (SELECT jobs FROM outbox_messages WHERE waits_for = $1 ORDER BY jobs[1] LIMIT $2) m`, campaignID, countMost).Scan(&jobs)
	return jobs, fault.At(err, "job.CountAwaiting")
}

// Resume replaces messages that wait for campaigns by new ones that do not, and returns these, the oldest
// first. It replaces about limit messages of those that were snoozed before a time, the oldest of each campaign,
// and returns how many, 0 when none is left: one that is snoozed meanwhile waits for the next run. The caller
// enqueues the new ones after the commit.
func Resume(ctx context.Context, tx pgx.Tx, campaigns []uuid.UUID, before time.Time, limit int) (messages []Message, replaced int, err error) {
	ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT m.id FROM unnest($1::uuid[]) AS c (id)
		CROSS JOIN LATERAL (SELECT id, jobs[1] AS oldest FROM outbox_messages WHERE waits_for = c.id AND seen_at < $3 ORDER BY jobs[1] LIMIT greatest($2 / cardinality($1), 1)) m
		ORDER BY m.oldest LIMIT $2`, campaigns, limit, before)
	if err == nil && len(ids) > 0 {
		messages, err = replaceMessages(ctx, tx, ids, nil, true)
	}
	slices.SortFunc(messages, func(a, b Message) int { return uuidv7.Compare(a.Jobs[0].ID, b.Jobs[0].ID) })
	return messages, len(ids), fault.At(err, "job.Resume")
}
