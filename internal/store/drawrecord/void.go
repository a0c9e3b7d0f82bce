package drawrecord

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Stuck is what decides whether a draw under way may be voided.
type Stuck struct {
	StartedAt  time.Time
	RoundDueAt *time.Time // nil: not frozen, or without a beacon
	RoundKnown bool       // it is stored: the draw follows from it
	VoidsAt    *time.Time // nil: not announced
	Now        time.Time  // of the database's clock
}

// StuckOf reads a draw under way. Call it under the campaign's lock.
func StuckOf(ctx context.Context, tx pgx.Tx, id uuid.UUID) (s Stuck, err error) {
	err = tx.QueryRow(ctx, `
		SELECT c.draw_started_at, r.due_at, coalesce(r.is_known, false), v.voids_at, clock_timestamp()
		FROM campaigns c LEFT JOIN draw_rounds(c.id) r ON true LEFT JOIN draw_voids v ON v.campaign_id = c.id
		WHERE c.id = $1 AND c.state = 'drawing'`, id).Scan(&s.StartedAt, &s.RoundDueAt, &s.RoundKnown, &s.VoidsAt, &s.Now)
	return s, fault.At(err, "drawrecord.StuckOf(%s)", id)
}

// AnnounceVoid stores that a draw is voided 168 hours from now, unless its round comes before. A
// trigger refuses it while the round is not due for 24 hours, the primary key a second.
func AnnounceVoid(ctx context.Context, tx pgx.Tx, id uuid.UUID) (voidsAt time.Time, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO draw_voids (campaign_id, announced_at, voids_at)
		SELECT $1, now.at, now.at + interval '168 hours' FROM (SELECT clock_timestamp() AS at) now RETURNING voids_at`, id).Scan(&voidsAt)
	return voidsAt, fault.At(err, "drawrecord.AnnounceVoid(%s)", id)
}

// VoidsAt returns when the draw of a campaign is voided, or was; nil: that is not announced.
func VoidsAt(ctx context.Context, db postgres.DB, id uuid.UUID) (at *time.Time, err error) {
	err = db.QueryRow(ctx, `SELECT voids_at FROM draw_voids WHERE campaign_id = $1`, id).Scan(&at)
	_, err = postgres.Found(err)
	return at, fault.At(err, "drawrecord.VoidsAt(%s)", id)
}
