package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
}

// slot is the unique place of a request.
type slot struct{ client, key string }

// Accept makes jobs of requests and, in the same commit, one ring per kind.
// Requests whose key is known get the job of that key. Any number of processes
// may accept the same keys at once: all insert in the order of (client, key),
// so nobody waits in a circle, and exactly one insert wins.
//
// The rings returned are to be enqueued; their jobs are committed already.
func Accept(ctx context.Context, db postgres.DB, requests []Request) ([]Accepted, []Ring, error) {
	order := distinct(requests)
	jobs, rings, err := insert(ctx, db, requests, order)
	if err != nil {
		return nil, nil, fmt.Errorf("job.Accept: %w", err)
	}
	if err := readTaken(ctx, db, requests, order, jobs); err != nil {
		return nil, nil, fmt.Errorf("job.Accept: %w", err)
	}
	accepted := make([]Accepted, len(requests))
	for i, r := range requests {
		j := jobs[slot{r.Client, r.Key}]
		accepted[i] = Accepted{Job: j, Replayed: j.ID != r.ID, Reused: j.Hash != r.Hash}
	}
	return accepted, rings, nil
}

// distinct returns the indexes of requests in the order of (client, key): of
// several with the same key the earliest.
func distinct(requests []Request) []int {
	taken := make(map[slot]bool, len(requests))
	order := make([]int, 0, len(requests))
	for i, r := range requests {
		if at := (slot{r.Client, r.Key}); !taken[at] {
			taken[at] = true
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(requests[a].Client, requests[b].Client), cmp.Compare(requests[a].Key, requests[b].Key))
	})
	return order
}

// insert makes jobs of those requests whose key is free. Jobs and rings are
// written by one statement, which is its own transaction.
func insert(ctx context.Context, db postgres.DB, requests []Request, order []int) (map[slot]Job, []Ring, error) {
	n := len(order)
	ids, clients, keys := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	hashes, kinds, campaigns := make([][]byte, n), make([]string, n), make([]*uuid.UUID, n)
	users, payloads, keeps := make([]*string, n), make([][]byte, n), make([]float64, n)
	rings := make(map[Kind]*Ring)
	var ringIDs []uuid.UUID
	var ringKinds []string
	for at, i := range order {
		r := requests[i]
		ids[at], clients[at], keys[at], hashes[at], kinds[at] = r.ID, r.Client, r.Key, r.Hash[:], string(r.Kind)
		campaigns[at], users[at] = pointer(r.CampaignID), pointer(r.UserID)
		payloads[at], keeps[at] = r.Payload, r.Keep.Seconds()
		if rings[r.Kind] == nil {
			ring := &Ring{ID: NewID(), Kind: r.Kind, Number: 1}
			rings[r.Kind], ringIDs, ringKinds = ring, append(ringIDs, ring.ID), append(ringKinds, string(r.Kind))
		}
	}
	rows, err := db.Query(ctx, `
		WITH accepted AS (
			INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, expires_at)
			SELECT id, client, key, hash, kind, campaign_id, user_id, payload, clock_timestamp() + keep * interval '1 second'
			FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::uuid[], $7::text[], $8::json[], $9::float8[])
			     WITH ORDINALITY AS r (id, client, key, hash, kind, campaign_id, user_id, payload, keep, place)
			ORDER BY place
			ON CONFLICT (client, idempotency_key) DO NOTHING
			RETURNING id, kind, client, idempotency_key, accepted_at
		), rung AS (
			INSERT INTO rings (id, kind, jobs)
			SELECT r.id, r.kind, array_agg(a.id ORDER BY a.id)
			FROM unnest($10::uuid[], $11::text[]) AS r (id, kind) JOIN accepted a USING (kind)
			GROUP BY r.id, r.kind
		)
		SELECT id, client, idempotency_key, accepted_at FROM accepted`,
		ids, clients, keys, hashes, kinds, campaigns, users, payloads, keeps, ringIDs, ringKinds)
	if err != nil {
		return nil, nil, err
	}
	byID := make(map[uuid.UUID]Request, n)
	for _, i := range order {
		byID[requests[i].ID] = requests[i]
	}
	jobs := make(map[slot]Job, n)
	var j Job
	_, err = pgx.ForEachRow(rows, []any{&j.ID, &j.Client, &j.Key, &j.AcceptedAt}, func() error {
		r := byID[j.ID]
		jobs[slot{j.Client, j.Key}] = Job{ID: j.ID, Client: j.Client, Key: j.Key, Hash: r.Hash, Kind: r.Kind,
			CampaignID: pointer(r.CampaignID), UserID: pointer(r.UserID), State: Queued, AcceptedAt: j.AcceptedAt}
		rings[r.Kind].Jobs = append(rings[r.Kind].Jobs, Ref{ID: j.ID, CampaignID: r.CampaignID})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	var made []Ring
	for _, ring := range rings {
		if len(ring.Jobs) > 0 {
			made = append(made, *ring)
		}
	}
	return jobs, made, nil
}

// errVanished means that a key was taken when we inserted and free when we
// looked: the retention sweep took the old job in between. The caller may try again.
var errVanished = errors.New("the job of a taken key has just been deleted")

// readTaken adds the jobs of keys that were taken. It is a statement after the
// insert: what made the insert step back may be younger than its snapshot.
func readTaken(ctx context.Context, db postgres.DB, requests []Request, order []int, jobs map[slot]Job) error {
	var clients, keys []string
	for _, i := range order {
		if at := (slot{requests[i].Client, requests[i].Key}); jobs[at].ID == uuid.Nil {
			clients, keys = append(clients, at.client), append(keys, at.key)
		}
	}
	if len(clients) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, byKeySQL, clients, keys)
	if err != nil {
		return err
	}
	taken, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return err
	}
	for _, j := range taken {
		jobs[slot{j.Client, j.Key}] = j
	}
	if len(taken) < len(clients) {
		return fault.Wrap(fault.Unavailable, errVanished, "the key is being cleaned up; retry with the same key")
	}
	return nil
}

// pointer returns nil for a zero value: NULL in the database.
func pointer[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
