package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Once does a command that is answered at once, exactly once per idempotency
// key: its job row, already final, is written in the transaction of its effect.
//
// do returns the status and body of the answer. When it returns a refusal that
// will stay one (a conflict, a thing that is not there), the refusal is recorded
// and its effect is undone; any other error undoes everything and the key stays
// free. The row is inserted first, so that of two equal requests the second
// waits for the first and then gets its answer.
func Once(ctx context.Context, db postgres.Beginner, r Request, do func(tx pgx.Tx) (status int, body any, err error)) (Accepted, error) {
	var done Accepted
	err := postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		claimed, err := claim(ctx, tx, r)
		if err != nil {
			return err
		}
		if !claimed {
			return readTakenOne(ctx, tx, r, &done)
		}
		return doClaimed(ctx, tx, r, do, &done)
	})
	if err != nil {
		return Accepted{}, err
	}
	return done, nil
}

func claim(ctx context.Context, tx pgx.Tx, r Request) (bool, error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, state, attempts, finished_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, 'succeeded', 1, clock_timestamp(), clock_timestamp() + $7 * interval '1 second')
		ON CONFLICT (client, idempotency_key) DO NOTHING`,
		r.ID, r.Client, r.Key, r.Hash[:], r.Kind, pointer(r.CampaignID), r.Keep.Seconds())
	if err != nil {
		return false, fmt.Errorf("job.Once: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

func readTakenOne(ctx context.Context, tx pgx.Tx, r Request, done *Accepted) error {
	jobs := make(map[slot]Job, 1)
	if err := readTaken(ctx, tx, []Request{r}, []int{0}, jobs); err != nil {
		return fmt.Errorf("job.Once: %w", err)
	}
	j := jobs[slot{r.Client, r.Key}]
	*done = Accepted{Job: j, Replayed: true, Reused: j.Hash != r.Hash}
	return nil
}

func doClaimed(ctx context.Context, tx pgx.Tx, r Request, do func(pgx.Tx) (int, any, error), done *Accepted) error {
	var status int
	var body any
	refusal := pgx.BeginFunc(ctx, tx, func(effect pgx.Tx) (err error) { // a savepoint
		status, body, err = do(effect)
		return err
	})
	state, problem := Succeeded, (*Problem)(nil)
	var result json.RawMessage
	if refusal != nil {
		if f, ok := errors.AsType[*fault.Error](refusal); !ok || !final(f.Code.Kind()) {
			return refusal
		}
		stored := ProblemOf(refusal)
		state, problem = Failed, &stored
	} else {
		var err error
		if result, err = json.Marshal(body); err != nil {
			return fmt.Errorf("job.Once: %w", err)
		}
	}
	done.Job = Job{ID: r.ID, Client: r.Client, Key: r.Key, Hash: r.Hash, Kind: r.Kind, CampaignID: pointer(r.CampaignID),
		State: state, Result: result, Problem: problem, HTTPStatus: pointer(status), Attempts: 1}
	_, err := tx.Exec(ctx, `UPDATE jobs SET state = $2, result = $3, problem = $4, http_status = $5 WHERE id = $1`,
		r.ID, state, result, problem, pointer(status))
	if err != nil {
		return fmt.Errorf("job.Once: %w", err)
	}
	return nil
}

// final tells whether a refusal of this kind is worth remembering: the same
// request would be refused again, or its outcome must not change under a retry.
func final(k fault.Kind) bool {
	return k == fault.KindConflict || k == fault.KindNotFound || k == fault.KindMismatch
}
