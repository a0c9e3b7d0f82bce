package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// QueueWait returns for how long the oldest new payment waits for a worker; 0: none
// waits. It is about how long a payment that is reserved now will wait, too. It reads
// one entry of an index.
func QueueWait(ctx context.Context, db postgres.DB) (wait time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce((SELECT clock_timestamp() - created_at FROM payments WHERE phase = 'reserved' ORDER BY created_at LIMIT 1), interval '0')`).
		Scan(&wait)
	if err != nil {
		return 0, fmt.Errorf("payment.QueueWait: %w", err)
	}
	return max(wait, 0), nil
}

// OpenByPhase counts the open payments, by phase.
func OpenByPhase(ctx context.Context, db postgres.DB) (map[Phase]int, error) {
	counts := make(map[Phase]int)
	var phase Phase
	var n int
	err := postgres.Scan(ctx, db, func() { counts[phase] = n }, []any{&phase, &n}, `SELECT phase, count(*) FROM payments WHERE finished_at IS NULL GROUP BY phase`)
	return counts, fault.At(err, "payment.OpenByPhase")
}

// QueueWaiting notes why open payments wait, for people. It is no move of theirs, so
// their versions stay.
func QueueWaiting(b *pgx.Batch, purchases []uuid.UUID, reason Wait) {
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	b.Queue(`UPDATE payments SET waiting_for = $2, waiting_since = coalesce(waiting_since, clock_timestamp()), last_error = NULL WHERE purchase_id = ANY($1) AND finished_at IS NULL`, purchases, reason)
}
