package job

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// Answer is the result of a command: a body, or a refusal.
type Answer struct {
	Body    any // becomes JSON
	Refusal error

	Before, After any // of a change, for the audit trail; no After: it is Body
}

// Once does a command exactly once per idempotency key. It is [OnceEach] for one
// command; when do refuses the command, its effect is rolled back.
//
// do returns the body of the answer, or an Answer. A refusal that is recorded, now or by an
// earlier request, is the problem of the job; any other refusal is an error.
func Once(ctx context.Context, db postgres.Beginner, r Request, do func(tx pgx.Tx) (body any, err error)) (Accepted, error) {
	done, err := OnceEach(ctx, db, []Request{r}, func(tx pgx.Tx, _ []int) ([]Answer, error) {
		var body any
		err := pgx.BeginFunc(ctx, tx, func(effect pgx.Tx) (err error) { // a savepoint
			body, err = do(effect)
			return err
		})
		if _, refused := errors.AsType[*fault.Error](err); err != nil && !refused {
			return nil, err
		}
		answer, isWhole := body.(Answer)
		if !isWhole {
			answer.Body = body
		}
		answer.Refusal = err
		return []Answer{answer}, nil
	})
	if err != nil {
		return Accepted{}, err
	}
	return done[0], done[0].Err
}

// Edit does a command about one row exactly once per idempotency key, as [Once] does: lock
// locks the row and reads it, decide refuses the command or queues its statements, and render
// makes the answer's body of the row as it is then. It returns that row, too; nil when nothing
// was done: the command was refused, or the key has an answer already.
func Edit[T any](ctx context.Context, db postgres.Beginner, r Request, lock func(ctx context.Context, tx pgx.Tx) (T, error),
	decide func(b *pgx.Batch, known T) error, render func(T) any,
) (edited *T, accepted Accepted, err error) {
	accepted, err = Once(ctx, db, r, func(tx pgx.Tx) (any, error) {
		known, err := lock(ctx, tx)
		if err != nil {
			return nil, err
		}
		var b pgx.Batch
		if err := decide(&b, known); err != nil {
			return nil, err
		}
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return nil, fmt.Errorf("job.Edit: %w", err)
		}
		now, err := lock(ctx, tx)
		if err != nil {
			return nil, err
		}
		edited = &now
		return Answer{Body: render(now), Before: render(known)}, nil
	})
	if err != nil { // the commit has failed, perhaps
		return nil, accepted, err
	}
	return edited, accepted, nil
}

// OnceEach does commands that share a transaction, each exactly once per
// idempotency key: a command's job row, already final, is written in the
// transaction of its effect.
//
// do gets the indexes of those requests whose key is new, in the order of requests,
// and returns one answer for each. A command that it refuses must have no effect. A
// refusal that would be the same on a retry (a conflict, something not found) is
// recorded; after any other refusal the key stays free. An error of do rolls back
// the whole transaction.
//
// The rows are inserted first, so that the second of two equal requests waits for
// the first and then gets its answer.
func OnceEach(ctx context.Context, db postgres.Beginner, requests []Request, do func(tx pgx.Tx, fresh []int) ([]Answer, error)) ([]Accepted, error) {
	var done []Accepted
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		in := newRecords(requests, make([]error, len(requests)))
		if _, err := in.insert(ctx, tx, Succeeded); err != nil {
			return err
		}
		fresh, claimed := []int(nil), make(map[uuid.UUID]bool, len(requests))
		for i, r := range requests {
			if !in.made[r.ID].IsZero() && !claimed[r.ID] { // the same request twice counts once
				claimed[r.ID] = true
				fresh = append(fresh, i)
			}
		}
		jobs, undone := make(map[slot]Job), make(map[slot]refused)
		if len(fresh) > 0 {
			answers, err := do(tx, fresh)
			if err == nil {
				err = record(ctx, tx, requests, fresh, answers, jobs, undone)
			}
			if err != nil {
				return err
			}
		}
		var err error
		done, err = in.done(ctx, tx, jobs, func(i int) error {
			one, known := undone[requests[i].slot()]
			if !known {
				return in.why(i)
			}
			if one.hash != requests[i].Hash { // the refusal is of another request with this key
				return errTogether
			}
			return one.why
		})
		return err
	})
	if err != nil {
		return nil, fault.At(err, "job.OnceEach")
	}
	return done, nil
}

// errTogether answers a request when another request of the same transaction has
// its key and was refused: that refusal is not its answer.
var errTogether = fault.New(fault.KeyReused, "another request with this Idempotency-Key arrived at the same time; use a fresh key")

// refused is a request whose refusal is not recorded.
type refused struct {
	hash [sha256.Size]byte
	why  error
}

// record writes the answers into the claimed rows, and what operators have changed into the audit trail. It frees the
// keys of refusals that are not final, and adds the jobs, and what was refused and leaves its key free.
func record(ctx context.Context, tx pgx.Tx, requests []Request, fresh []int, answers []Answer, jobs map[slot]Job, undone map[slot]refused) error {
	if len(answers) != len(fresh) {
		return fmt.Errorf("%d answers to %d commands", len(answers), len(fresh))
	}
	var ids, gone []uuid.UUID
	var states []string
	var results []json.RawMessage
	var problems []*Problem
	var statuses []*int
	var changes []trail.Entry
	for at, i := range fresh {
		r := requests[i]
		if refusal := answers[at].Refusal; refusal != nil && !isFinal(refusal) {
			undone[r.slot()] = refused{r.Hash, refusal}
			gone = append(gone, r.ID)
			continue
		}
		j, err := r.answered(answers[at])
		if err != nil {
			return err
		}
		jobs[r.slot()] = j
		if r.Actor != nil && j.State == Succeeded {
			changes = append(changes, r.Actor.Entry(r.ID, answers[at].Before, cmp.Or[any](answers[at].After, j.Result)))
		}
		ids, states, results = append(ids, j.ID), append(states, string(j.State)), append(results, j.Result)
		problems, statuses = append(problems, j.Problem), append(statuses, j.HTTPStatus)
	}
	var b pgx.Batch
	b.Queue(`
		UPDATE jobs j SET state = a.state, result = a.result, problem = a.problem, http_status = a.status
		FROM unnest($1::uuid[], $2::text[], $3::json[], $4::json[], $5::int[]) AS a (id, state, result, problem, status)
		WHERE j.id = a.id`, ids, states, results, problems, statuses).Exec(postgres.Exactly(len(ids), "claims"))
	if len(gone) > 0 {
		b.Queue(`DELETE FROM jobs WHERE id = ANY($1)`, gone)
	}
	if len(changes) > 0 {
		b.Queue(trail.Insert("$1"), trail.Rows(changes...))
	}
	return tx.SendBatch(ctx, &b).Close()
}

// answered is the job that a command leaves behind.
func (r Request) answered(a Answer) (Job, error) {
	j := r.job(Succeeded)
	j.Attempts = 1
	if a.Refusal != nil {
		problem := ProblemOf(a.Refusal)
		j.State, j.Problem = Failed, &problem
		return j, nil //nolint:nilerr // a refusal is an answer
	}
	body, err := json.Marshal(a.Body)
	j.Result, j.HTTPStatus = body, postgres.Nullable(r.HTTPStatus)
	return j, err
}

// isFinal reports whether a refusal is recorded: the same request would be refused
// again, or a retry must not get another outcome.
func isFinal(refusal error) bool {
	k := fault.CodeOf(refusal).Kind() // of another error: internal
	return k == fault.KindConflict || k == fault.KindNotFound || k == fault.KindMismatch
}
