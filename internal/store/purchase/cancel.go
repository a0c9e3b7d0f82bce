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

// QueueCancel makes completed purchases cancelled; by and reasons belong to ids, each of
// which is there once. The items of the purchases stay on record.
func QueueCancel(b *pgx.Batch, ids []uuid.UUID, by, reasons []string) {
	b.Queue(`
		UPDATE purchases p
		SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = c.by, cancel_reason = nullif(c.reason, '')
		FROM unnest($1::uuid[], $2::text[], $3::text[]) AS c (id, by, reason)
		WHERE p.id = c.id AND p.state = 'completed'`, ids, by, reasons).Exec(postgres.Exactly(len(ids), "completed purchases"))
}
