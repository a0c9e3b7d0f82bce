package job_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// A transaction that completes jobs waits for the first before it locks the next. In
// another order it and Begin, for the same jobs, would wait for each other.
func TestJobsAreLockedInAscendingOrderHoweverTheyLie(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := []uuid.UUID{uuid.MustParse("01000000-0000-7000-8000-000000000001"), uuid.MustParse("01000000-0000-7000-8000-000000000002")}
	for _, id := range []uuid.UUID{ids[1], ids[0]} { // as they lie in the table
		servers.Exec(t, db, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, payload, expires_at)
			VALUES ($1::uuid, 'shop', $1::text, sha256('a'), 'purchase', '{}', clock_timestamp() + interval '1 day')`, id)
	}
	for what, finalize := range map[string]func(context.Context) error{
		"finalize": func(ctx context.Context) error {
			return postgres.InTx(ctx, db, func(tx pgx.Tx) error {
				var b pgx.Batch
				job.QueueComplete(&b, []job.Outcome{{ID: ids[1], Result: json.RawMessage(`{}`)}, {ID: ids[0], Result: json.RawMessage(`{}`)}})
				return tx.SendBatch(ctx, &b).Close()
			})
		},
		"begin": func(ctx context.Context) error {
			_, err := job.Begin(ctx, db, []job.Ref{{ID: ids[1]}, {ID: ids[0]}})
			return err
		},
	} {
		first, err := db.Begin(t.Context())
		servers.NoError(t, err)
		servers.Exec(t, first, `SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE`, ids[0])
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- finalize(ctx) }()
		servers.AwaitBlocked(t, db, 1)
		if _, err := first.Exec(t.Context(), `SELECT FROM jobs WHERE id = $1 FOR NO KEY UPDATE NOWAIT`, ids[1]); err != nil {
			t.Errorf("%s: the second is locked before the first: %v", what, err)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: done, though the first was locked", what)
		}
		_ = first.Rollback(context.Background())
	}
}
