package hold

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// QueueInsert stores new holds, in one statement.
func QueueInsert(b *pgx.Batch, holds []Hold) error {
	n := len(holds)
	ids, campaigns, users, deadlines := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n), make([]time.Time, n)
	positions, sizes, created := make([][]byte, n), make([]int, n), make([]time.Time, n)
	for i, h := range holds {
		text, err := json.Marshal(h.Positions)
		if err != nil {
			return fmt.Errorf("hold.QueueInsert: %w", err)
		}
		ids[i], campaigns[i], users[i], deadlines[i] = h.ID, h.CampaignID, h.UserID, h.ExpiresAt
		positions[i], sizes[i], created[i] = text, len(h.Positions), h.CreatedAt
	}
	b.Queue(`
		INSERT INTO holds (id, campaign_id, user_id, positions, size, expires_at, created_at)
		SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[], $5::int[], $6::timestamptz[], $7::timestamptz[])`,
		ids, campaigns, users, positions, sizes, deadlines, created)
	return nil
}

// QueueUse ends active holds that purchases have used: purchases[i] used
// holds[i]. The caller checks the number of rows, here and below.
func QueueUse(b *pgx.Batch, holds, purchases []uuid.UUID) *pgx.QueuedQuery {
	return b.Queue(`
		UPDATE holds h SET state = 'used', purchase_id = u.purchase_id, ended_at = clock_timestamp()
		FROM unnest($1::uuid[], $2::uuid[]) AS u (id, purchase_id)
		WHERE h.id = u.id AND h.state = 'active'`, holds, purchases)
}

// QueueExpire ends active holds whose time is over.
func QueueExpire(b *pgx.Batch, holds []uuid.UUID) *pgx.QueuedQuery {
	return b.Queue(`
		UPDATE holds SET state = 'expired', ended_at = clock_timestamp()
		WHERE id = ANY($1) AND state = 'active' AND expires_at <= clock_timestamp()`, holds)
}

// QueueRelease ends an active hold that its owner gives back.
func QueueRelease(b *pgx.Batch, id uuid.UUID) *pgx.QueuedQuery {
	return b.Queue(`UPDATE holds SET state = 'released', ended_at = clock_timestamp() WHERE id = $1 AND state = 'active'`, id)
}

// QueueExtend moves the deadline of an active hold.
func QueueExtend(b *pgx.Batch, id uuid.UUID, expiresAt time.Time) *pgx.QueuedQuery {
	return b.Queue(`
		UPDATE holds SET expires_at = $2, extensions = extensions + 1 WHERE id = $1 AND state = 'active'`, id, expiresAt)
}

// DeleteEnded deletes up to limit holds that ended longer ago than keep, and
// returns how many.
func DeleteEnded(ctx context.Context, db postgres.DB, keep time.Duration, limit int) (int, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM holds WHERE id IN (
			SELECT id FROM holds WHERE ended_at < clock_timestamp() - $1 * interval '1 second'
			ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, keep.Seconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("hold.DeleteEnded: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
