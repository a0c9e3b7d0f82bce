package purchase

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// QueueRefunded notes that the money of a purchase is given back.
func QueueRefunded(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`UPDATE purchases SET state = 'refunded' WHERE id = $1 AND state = 'refunding'`, id).Exec(postgres.Exactly(1, "refunding purchases"))
}

// QueueRefundFailed notes that the money of a purchase came back after all: its refund
// had succeeded, and then the buyer's bank refused it.
func QueueRefundFailed(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`UPDATE purchases SET state = 'refunding' WHERE id = $1 AND state = 'refunded'`, id).Exec(postgres.Exactly(1, "refunded purchases"))
}
