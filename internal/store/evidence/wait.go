package evidence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// Wait is what a draw under way waits for, and when it is tried again.
type Wait struct {
	Reason  string
	RetryAt time.Time
}

// NoteWait stores what a draw waits for now. It replaces what it waited for before.
func NoteWait(ctx context.Context, db postgres.DB, id uuid.UUID, w Wait) error {
	_, err := db.Exec(ctx, `
		INSERT INTO draw_waits (campaign_id, reason, retry_at) VALUES ($1, $2, $3)
		ON CONFLICT (campaign_id) DO UPDATE SET reason = excluded.reason, retry_at = excluded.retry_at`, id, w.Reason, w.RetryAt)
	if err != nil {
		return fmt.Errorf("evidence.NoteWait(%s): %w", id, err)
	}
	return nil
}

// EndWait deletes the note.
func EndWait(ctx context.Context, db postgres.DB, id uuid.UUID) error {
	if _, err := db.Exec(ctx, `DELETE FROM draw_waits WHERE campaign_id = $1`, id); err != nil {
		return fmt.Errorf("evidence.EndWait(%s): %w", id, err)
	}
	return nil
}

// WaitOf returns what a draw waits for, or false.
func WaitOf(ctx context.Context, db postgres.DB, id uuid.UUID) (w Wait, ok bool, err error) {
	err = db.QueryRow(ctx, `SELECT reason, retry_at FROM draw_waits WHERE campaign_id = $1`, id).Scan(&w.Reason, &w.RetryAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Wait{}, false, nil
	}
	if err != nil {
		return Wait{}, false, fmt.Errorf("evidence.WaitOf(%s): %w", id, err)
	}
	return w, true, nil
}
