package purchase

import (
	"time"

	"triprize/internal/platform/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Cancellation is who cancelled a purchase, when and why.
type Cancellation struct {
	At     time.Time
	By     string  // role:client, and /user when one was signed in
	Reason *string // at most 500 characters; nil: none was given
}

// QueueCancel makes a completed purchase cancelled. Its items stay on record.
func QueueCancel(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`
		UPDATE purchases
		SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = $2, cancel_reason = nullif($3, '')
		WHERE id = $1 AND state = 'completed'`, id, by, reason).Exec(postgres.Exactly(1, "completed purchases"))
}
