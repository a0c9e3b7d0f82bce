package job

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Answer is what a command came to: a status and a body, or a refusal.
type Answer struct {
	Status  int
	Body    any // becomes JSON
	Refusal error
}

// Done is what became of one command of a crowd.
type Done struct {
	Accepted
	Err error // a refusal that was not recorded: the key stays free
}

// OnceEach is Once for commands that share a transaction: each is done exactly
// once per idempotency key, and its job row, already final, is written in the
// transaction of its effect.
//
// do gets the indexes of those requests whose key is new, in the order in which
// they came, and returns one answer for each. What it refuses must have had no
// effect. A refusal that will stay one is recorded; after any other the key
// stays free. An error of do undoes everything, for all.
//
// The rows are inserted first, in the order of (client, key), so that of two
// equal requests the second waits for the first and then gets its answer, and no
// two crowds wait in a circle.
func OnceEach(ctx context.Context, db postgres.Beginner, requests []Request, do func(tx pgx.Tx, fresh []int) ([]Answer, error)) ([]Done, error) {
	var done []Done
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		crowd := crowd{requests: requests, order: distinct(requests)}
		fresh, err := crowd.claim(ctx, tx)
		if err != nil {
			return err
		}
		if len(fresh) > 0 {
			answers, err := do(tx, fresh)
			if err != nil {
				return err
			}
			if err := crowd.record(ctx, tx, fresh, answers); err != nil {
				return err
			}
		}
		done, err = crowd.done(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("job.OnceEach: %w", err)
	}
	return done, nil
}

// errTogether is for a request whose key belonged to another one of the same
// crowd: what that one was refused for is not its answer.
var errTogether = fault.New(fault.KeyReused, "another request came at the same time with this Idempotency-Key; use a fresh key")

// crowd is the state of one transaction.
type crowd struct {
	requests []Request
	order    []int // distinct keys, sorted
	jobs     map[slot]Job
	undone   map[slot]undone // refusals that were not recorded
}

// undone is a request that leaves its key free, and why.
type undone struct {
	hash [sha256.Size]byte
	why  error
}

// claim inserts the rows of those requests whose key is free and returns which these are.
func (c *crowd) claim(ctx context.Context, tx pgx.Tx) (fresh []int, err error) {
	n := len(c.order)
	ids, clients, keys := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	hashes, kinds, campaigns := make([][]byte, n), make([]string, n), make([]*uuid.UUID, n)
	users, keeps := make([]*string, n), make([]float64, n)
	for at, i := range c.order {
		r := c.requests[i]
		ids[at], clients[at], keys[at], hashes[at], kinds[at] = r.ID, r.Client, r.Key, r.Hash[:], string(r.Kind)
		campaigns[at], users[at], keeps[at] = pointer(r.CampaignID), pointer(r.UserID), r.Keep.Seconds()
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, state, attempts, finished_at, expires_at)
		SELECT id, client, key, hash, kind, campaign_id, user_id, 'succeeded', 1, clock_timestamp(), clock_timestamp() + keep * interval '1 second'
		FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::uuid[], $7::text[], $8::float8[])
		     WITH ORDINALITY AS r (id, client, key, hash, kind, campaign_id, user_id, keep, place)
		ORDER BY place
		ON CONFLICT (client, idempotency_key) DO NOTHING
		RETURNING id`, ids, clients, keys, hashes, kinds, campaigns, users, keeps)
	if err != nil {
		return nil, err
	}
	claimed, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	mine := make(map[uuid.UUID]bool, len(claimed))
	for _, id := range claimed {
		mine[id] = true
	}
	for i, r := range c.requests {
		if mine[r.ID] {
			fresh = append(fresh, i)
			delete(mine, r.ID)
		}
	}
	return fresh, nil
}

// record writes the answers into the claimed rows, and frees the keys of
// refusals that are not worth remembering.
func (c *crowd) record(ctx context.Context, tx pgx.Tx, fresh []int, answers []Answer) error {
	if len(answers) != len(fresh) {
		return fmt.Errorf("%d answers to %d commands", len(answers), len(fresh))
	}
	c.jobs, c.undone = make(map[slot]Job, len(fresh)), make(map[slot]undone)
	var ids, gone []uuid.UUID
	var states []string
	var results []json.RawMessage
	var problems []*Problem
	var statuses []*int
	for at, i := range fresh {
		r, answer := c.requests[i], answers[at]
		j := Job{ID: r.ID, Client: r.Client, Key: r.Key, Hash: r.Hash, Kind: r.Kind, CampaignID: pointer(r.CampaignID),
			UserID: pointer(r.UserID), State: Succeeded, HTTPStatus: pointer(answer.Status), Attempts: 1}
		if refusal := answer.Refusal; refusal != nil {
			if f, ok := errors.AsType[*fault.Error](refusal); !ok || !final(f.Code.Kind()) {
				c.undone[slot{r.Client, r.Key}] = undone{r.Hash, refusal}
				gone = append(gone, r.ID)
				continue
			}
			stored := ProblemOf(refusal)
			j.State, j.Problem = Failed, &stored
		} else {
			body, err := json.Marshal(answer.Body)
			if err != nil {
				return err
			}
			j.Result = body
		}
		c.jobs[slot{r.Client, r.Key}] = j
		ids, states, results = append(ids, j.ID), append(states, string(j.State)), append(results, j.Result)
		problems, statuses = append(problems, j.Problem), append(statuses, j.HTTPStatus)
	}
	var b pgx.Batch
	b.Queue(`
		UPDATE jobs j SET state = a.state, result = a.result, problem = a.problem, http_status = a.status
		FROM unnest($1::uuid[], $2::text[], $3::json[], $4::json[], $5::int[]) AS a (id, state, result, problem, status)
		WHERE j.id = a.id`, ids, states, results, problems, statuses).Exec(func(tag pgconn.CommandTag) error {
		if int(tag.RowsAffected()) != len(ids) {
			return fmt.Errorf("%d of %d claims were still there", tag.RowsAffected(), len(ids))
		}
		return nil
	})
	if len(gone) > 0 {
		b.Queue(`DELETE FROM jobs WHERE id = ANY($1)`, gone)
	}
	return tx.SendBatch(ctx, &b).Close()
}

// done tells every request what became of it.
func (c *crowd) done(ctx context.Context, tx pgx.Tx) ([]Done, error) {
	if c.jobs == nil {
		c.jobs = make(map[slot]Job)
	}
	var earlier []int
	for _, i := range c.order {
		at := slot{c.requests[i].Client, c.requests[i].Key}
		if _, mine := c.jobs[at]; !mine && c.undone[at].why == nil {
			earlier = append(earlier, i)
		}
	}
	if err := readTaken(ctx, tx, c.requests, earlier, c.jobs); err != nil {
		return nil, err
	}
	done := make([]Done, len(c.requests))
	for i, r := range c.requests {
		at := slot{r.Client, r.Key}
		if u := c.undone[at]; u.why != nil {
			if done[i].Err = u.why; u.hash != r.Hash { // it came at the same time as another request with its key
				done[i].Err = errTogether
			}
			continue
		}
		j := c.jobs[at]
		done[i].Accepted = Accepted{Job: j, Replayed: j.ID != r.ID, Reused: j.Hash != r.Hash}
	}
	return done, nil
}
