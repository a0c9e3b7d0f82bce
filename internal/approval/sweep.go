package approval

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/trail"
)

// ExpiredRequests is the sweep that ends requests which nobody has decided about.
func ExpiredRequests(db postgres.Beginner) sweep.Sweep {
	return sweep.Sweep{Name: "expired-approvals", Every: time.Minute, Counts: []string{"expired"}, Run: func(ctx context.Context, run sweep.Run) error {
		return run.Batches(func(limit int) (int, error) {
			n, err := expire(ctx, db, limit)
			run.Counts["expired"] += n
			return n, err
		})
	}}
}

func expire(ctx context.Context, db postgres.Beginner, limit int) (n int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
			UPDATE approvals SET state = 'expired', decided_at = expires_at
			WHERE id = ANY(ARRAY(SELECT id FROM approvals WHERE state = 'pending' AND expires_at <= clock_timestamp() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
			RETURNING id`, limit)
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		rows := make([]trail.Entry, n)
		for i, id := range ids {
			by := trail.Actor{Client: "system", Via: "system", Operation: "expireRequest", Target: id.String()}
			rows[i] = by.Entry(uuid.Nil, map[string]any{"state": Pending}, map[string]any{"state": Expired})
		}
		_, err = tx.Exec(ctx, trail.Insert("$1"), trail.Rows(rows...))
		return err
	})
	return n, fault.At(err, "approval.expire")
}

// Prunes remove the bodies of requests that have ended 30 days ago, and movements of more than a day ago. The rows of
// requests are kept, as the trail is.
func Prunes(db postgres.DB) []sweep.Prune {
	remove := func(sql string, age time.Duration) func() sweep.Delete {
		return func() sweep.Delete {
			return func(ctx context.Context, limit int) (deleted int, more bool, err error) {
				tag, err := db.Exec(ctx, sql, age.Seconds(), limit)
				return int(tag.RowsAffected()), int(tag.RowsAffected()) == limit, fault.At(err, "approval.Prunes")
			}
		}
	}
	return []sweep.Prune{
		{Count: "approval_bodies_deleted", Begin: remove(`UPDATE approvals SET body = NULL WHERE id = ANY(ARRAY(
			SELECT id FROM approvals WHERE body IS NOT NULL AND decided_at < statement_timestamp() - $1 * interval '1 second' LIMIT $2 FOR UPDATE SKIP LOCKED))`, keepBody)},
		{Count: "approval_movements_deleted", Begin: remove(`DELETE FROM approval_movements WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM approval_movements WHERE at < statement_timestamp() - $1 * interval '1 second' LIMIT $2 FOR UPDATE SKIP LOCKED))`, 24*time.Hour)},
	}
}
