package payment

import (
	"context"
	"fmt"
	"time"

	"triprize/internal/platform/postgres"
)

// UnbegunFor returns for how long the oldest payment has waited that no worker has begun;
// 0: there is none. It reads one row of an index.
func UnbegunFor(ctx context.Context, db postgres.DB) (wait time.Duration, err error) {
	err = db.QueryRow(ctx, `
		SELECT coalesce((SELECT clock_timestamp() - created_at FROM payments WHERE phase = 'reserved' ORDER BY created_at LIMIT 1), interval '0')`).Scan(&wait)
	if err != nil {
		return 0, fmt.Errorf("payment.UnbegunFor: %w", err)
	}
	return max(wait, 0), nil
}
