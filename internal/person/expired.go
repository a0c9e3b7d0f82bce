package person

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/trail"
)

// Expired asks for the erasure of those whose newest purchase and movement of money are older than retention, and of whom nothing is
// open; 0: of nobody. Each run looks at the next users, in the order of their ids; after the last one it begins again. While an erasure
// by a run before is queued, a run does nothing: others wait for few. The sweep lost-jobs issues the jobs.
func (s Stored) Expired(db postgres.Beginner, retention, jobs time.Duration) []sweep.Prune {
	if retention == 0 {
		return nil
	}
	after := ""
	return []sweep.Prune{{Count: "users_expired", Begin: func() sweep.Delete {
		return func(ctx context.Context, limit int) (asked int, more bool, err error) {
			err = postgres.InTx(ctx, db, func(tx pgx.Tx) (err error) {
				asked, after, err = s.expire(ctx, tx, after, retention, jobs, min(limit, usersOfRun))
				return err
			})
			return asked, false, fault.At(err, "person.Expired")
		}
	}}}
}

// setting is the reason of these erasures.
const setting = "retention.personal"

// usersOfRun bounds the users that a run looks at, and mostAsked those that it asks for.
const usersOfRun, mostAsked = 100, 10

// userAfter selects the first user id after another one.
func userAfter(another string) string {
	return `least((SELECT user_id FROM purchases WHERE user_id > ` + another + ` ORDER BY user_id LIMIT 1), (SELECT owner_id FROM wallets WHERE owner_id > ` + another + ` ORDER BY owner_id LIMIT 1))`
}

func (s Stored) expire(ctx context.Context, tx pgx.Tx, after string, retention, jobs time.Duration, limit int) (asked int, next string, err error) {
	var before time.Time
	var isBusy bool
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp() - $1 * interval '1 second', EXISTS (SELECT FROM jobs WHERE kind = 'erasure' AND client = $2 AND state = 'queued')`,
		retention.Seconds(), job.System).Scan(&before, &isBusy); err != nil || isBusy {
		return 0, after, err
	}
	type user struct {
		ID     string
		Client *string // nil: nobody who has expired
	}
	users, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[user], `
		WITH RECURSIVE users (user_id, n) AS (
			SELECT `+userAfter(`$1`)+`, 1
			UNION ALL SELECT `+userAfter(`u.user_id`)+`, n + 1 FROM users u WHERE u.user_id IS NOT NULL AND n < $2)
		SELECT u.user_id, c.client FROM users u LEFT JOIN LATERAL (
			SELECT client FROM purchases WHERE user_id = u.user_id UNION SELECT client FROM wallets WHERE owner_id = u.user_id) c
			ON u.user_id !~ '^erased-[0-9a-f-]{36}$'
			AND NOT EXISTS (SELECT FROM purchases p WHERE p.user_id = u.user_id AND p.client = c.client AND p.id >= $3)
			AND NOT EXISTS (SELECT FROM wallets w LEFT JOIN wallet_events e ON e.wallet_id = w.id AND e.version = w.version
				WHERE w.owner_id = u.user_id AND w.client = c.client AND (w.balance <> 0 OR coalesce(e.at, w.created_at) >= $4))
			AND NOT EXISTS (SELECT FROM jobs j WHERE j.kind = 'erasure' AND j.user_id = u.user_id)
		WHERE u.user_id IS NOT NULL ORDER BY u.n, c.client`, after, limit, uuidv7.FirstAt(before), before)
	if err != nil || len(users) == 0 {
		return 0, "", err
	}
	actor := &trail.Actor{Client: job.System, Via: job.System, Operation: "eraseUser", Reason: setting}
	var requests []job.Request
	for i, u := range users {
		if u.Client == nil {
			continue
		}
		if len(requests) == mostAsked {
			users = users[:i]
			break
		}
		whose := Person{Client: *u.Client, UserID: u.ID}
		switch err := s.Open(ctx, tx, whose); {
		case fault.CodeOf(err) == fault.StateConflict:
			continue
		case err != nil:
			return 0, after, err
		}
		payload, err := json.Marshal(Order{Person: whose, By: job.System, Reason: setting})
		if err != nil {
			return 0, after, err
		}
		requests = append(requests, job.Request{ID: uuidv7.New(), Client: job.System, Key: "retention:" + uuid.NewString(), Kind: job.KindErasure, UserID: u.ID, Owner: *u.Client, Payload: payload, Retention: jobs, Actor: actor})
	}
	if len(requests) > 0 {
		_, _, err = job.Accept(ctx, tx, requests)
	}
	return len(requests), users[len(users)-1].ID, err
}
