package job

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Accepted is the outcome of one request.
type Accepted struct {
	Job      Job
	Replayed bool // the job is that of an earlier request with the same key
	Reused   bool // the key belongs to a different request; Job is that of the key
	Closed   bool // there is no job: it is a purchase, its key is free, and its campaign never sells again
}

// slot is the unique key of a request.
type slot struct{ client, key string }

func (r Request) slot() slot { return slot{r.Client, r.Key} }

// Intake makes jobs from requests. A request whose key is known gets the job of
// that key. Any number of processes may use the same keys at once: all insert in
// the order of (client, key), so they cannot deadlock, and exactly one insert wins.
//
// Call Queue, send the batch, then call Made and Accepted.
type Intake struct {
	requests []Request
	order    []int // indexes of requests, each key once, in the order of (client, key)
	made     map[uuid.UUID]time.Time
	closed   map[uuid.UUID]bool // campaigns of purchases that never sell again
}

// NewIntake returns an Intake of requests. The first request with a key makes the
// job of that key.
func NewIntake(requests []Request) *Intake {
	in := &Intake{requests: requests, order: make([]int, 0, len(requests)), made: make(map[uuid.UUID]time.Time), closed: make(map[uuid.UUID]bool)}
	seen := make(map[slot]bool, len(requests))
	for i, r := range requests {
		if at := r.slot(); !seen[at] {
			seen[at] = true
			in.order = append(in.order, i)
		}
	}
	slices.SortFunc(in.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(requests[a].Client, requests[b].Client), cmp.Compare(requests[a].Key, requests[b].Key))
	})
	return in
}

// Queue inserts a queued job for every request whose key is free, but for purchases of campaigns
// that never sell again: no job is needed to refuse these.
func (in *Intake) Queue(b *pgx.Batch) { in.queue(b, Queued, "") }

// QueueWith is Queue with a statement that needs to know which jobs are made: it finds their
// id and kind in the table made. Its arguments are $15 and the following.
func (in *Intake) QueueWith(b *pgx.Batch, sql string, args ...any) {
	in.queue(b, Queued, `, also AS (`+sql+`)`, args...)
}

// queue inserts jobs in a state. A job that is final from the start belongs to a
// command and has had its one attempt.
func (in *Intake) queue(b *pgx.Batch, state State, also string, args ...any) {
	n := len(in.order)
	ids, clients, keys := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	hashes, kinds, campaigns := make([][]byte, n), make([]string, n), make([]*uuid.UUID, n)
	users, payloads, keeps := make([]*string, n), make([][]byte, n), make([]float64, n)
	requests, traces := make([]*string, n), make([]*string, n)
	var sellers []uuid.UUID // campaigns of purchases, each once
	isSeller := make(map[uuid.UUID]bool, 1)
	for at, i := range in.order {
		r := in.requests[i]
		ids[at], clients[at], keys[at], hashes[at], kinds[at] = r.ID, r.Client, r.Key, r.Hash[:], string(r.Kind)
		campaigns[at], users[at] = postgres.Nullable(r.CampaignID), postgres.Nullable(r.UserID)
		payloads[at], keeps[at] = r.Payload, r.Keep.Seconds()
		requests[at], traces[at] = postgres.Nullable(r.RequestID), postgres.Nullable(r.Traceparent)
		if r.Kind == KindPurchase && !isSeller[r.CampaignID] {
			isSeller[r.CampaignID] = true
			sellers = append(sellers, r.CampaignID)
		}
	}
	b.Queue(`
		WITH closed AS MATERIALIZED (SELECT id FROM campaigns WHERE id = ANY($12) AND state IN ('drawing', 'completed', 'cancelled')),
		made AS (
			INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, request_id, traceparent, expires_at, state, attempts, finished_at)
			SELECT id, client, key, hash, kind, campaign_id, user_id, payload, request_id, traceparent, clock_timestamp() + keep * interval '1 second',
			       $10, CASE WHEN $11 THEN 1 ELSE 0 END, CASE WHEN $11 THEN clock_timestamp() END
			FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::uuid[], $7::text[], $8::json[], $9::float8[], $13::text[], $14::text[])
			     WITH ORDINALITY AS r (id, client, key, hash, kind, campaign_id, user_id, payload, keep, request_id, traceparent, place)
			WHERE NOT (kind = 'purchase' AND campaign_id IN (SELECT id FROM closed))
			ORDER BY place
			ON CONFLICT (client, idempotency_key) DO NOTHING
			RETURNING id, kind, accepted_at
		)`+also+`
		SELECT id, accepted_at FROM made UNION ALL SELECT id, NULL FROM closed`,
		append([]any{ids, clients, keys, hashes, kinds, campaigns, users, payloads, keeps, string(state), state.Final(), sellers, requests, traces}, args...)...).Query(in.scanMade)
}

// scanMade reads the jobs that were made, and the closed campaigns, which have no time.
func (in *Intake) scanMade(rows pgx.Rows) error {
	clear(in.made)
	clear(in.closed)
	var id uuid.UUID
	var at *time.Time
	_, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		if at == nil {
			in.closed[id] = true
		} else {
			in.made[id] = *at
		}
		return nil
	})
	return err
}

// Candidates returns the requests that make a job if their key is free.
func (in *Intake) Candidates() []Request {
	list := make([]Request, len(in.order))
	for at, i := range in.order {
		list[at] = in.requests[i]
	}
	return list
}

// Made reports whether a candidate has made its job.
func (in *Intake) Made(r Request) bool {
	_, ok := in.made[r.ID]
	return ok
}

// Accepted returns the outcome of every request, in the order of requests. It
// reads the jobs of keys that were known already.
func (in *Intake) Accepted(ctx context.Context, db postgres.DB) ([]Accepted, error) {
	jobs := make(map[slot]Job, len(in.order))
	var taken []Request
	for _, r := range in.Candidates() {
		at, made := in.made[r.ID]
		if !made {
			taken = append(taken, r)
			continue
		}
		jobs[r.slot()] = Job{ID: r.ID, Client: r.Client, Key: r.Key, Hash: r.Hash, Kind: r.Kind,
			CampaignID: postgres.Nullable(r.CampaignID), UserID: postgres.Nullable(r.UserID), State: Queued, AcceptedAt: at, Origin: r.Origin}
	}
	isClosed := func(r Request) bool { return r.Kind == KindPurchase && in.closed[r.CampaignID] }
	if err := readTaken(ctx, db, taken, jobs, isClosed); err != nil {
		return nil, err
	}
	accepted := make([]Accepted, len(in.requests))
	for i, r := range in.requests {
		if j, known := jobs[r.slot()]; known {
			accepted[i] = outcome(j, r)
		} else {
			accepted[i].Closed = true
		}
	}
	return accepted, nil
}

// outcome is what a request gets when j is the job of its key.
func outcome(j Job, r Request) Accepted {
	return Accepted{Job: j, Replayed: j.ID != r.ID, Reused: j.Hash != r.Hash}
}

// errVanished means that a key was taken at the insert and free at the read: the
// sweep old-records deleted the old job in between. The caller may try again.
var errVanished = errors.New("the job of a taken key has just been deleted")

// readTaken adds the jobs of keys that were taken. It must be a statement after the
// insert: a job in conflict with the insert may be newer than the insert's snapshot. Requests
// that mayBeFree, if that is not nil, need not have one.
func readTaken(ctx context.Context, db postgres.DB, taken []Request, jobs map[slot]Job, mayBeFree func(Request) bool) error {
	if len(taken) == 0 {
		return nil
	}
	found, err := ofKeys(ctx, db, taken)
	if err != nil {
		return err
	}
	for at, j := range found {
		jobs[at] = j
	}
	for _, r := range taken {
		if _, known := jobs[r.slot()]; !known && (mayBeFree == nil || !mayBeFree(r)) {
			return fault.Wrap(fault.Unavailable, errVanished, "the key is being cleaned up; retry with the same key")
		}
	}
	return nil
}
