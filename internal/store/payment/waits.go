package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// Summary is how the open payments are.
type Summary struct {
	Open        map[Phase]int
	Waiting     int           // that wait for the provider or for an operator
	OldestDue   time.Duration // for how long the oldest is due that no worker has
	OldestEvent time.Duration // see EventsWait
}

// Summarize counts the open payments.
func Summarize(ctx context.Context, db postgres.DB) (s Summary, err error) {
	s.Open = make(map[Phase]int)
	var b pgx.Batch
	b.Queue(`
		SELECT phase, count(*), count(*) FILTER (WHERE waiting_for IS NOT NULL) FROM payments WHERE finished_at IS NULL GROUP BY phase`).
		Query(func(rows pgx.Rows) error {
			var phase Phase
			var n, waiting int
			_, err := pgx.ForEachRow(rows, []any{&phase, &n, &waiting}, func() error {
				s.Open[phase] = n
				s.Waiting += waiting
				return nil
			})
			return err
		})
	b.Queue(`
		SELECT greatest(coalesce((SELECT clock_timestamp() - due_at FROM payments
			WHERE due_at <= clock_timestamp() AND (lease_until IS NULL OR lease_until <= clock_timestamp()) ORDER BY due_at LIMIT 1), interval '0'), interval '0')`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&s.OldestDue) })
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return s, fmt.Errorf("payment.Summarize: %w", err)
	}
	s.OldestEvent, err = EventsWait(ctx, db)
	return s, err
}

// GiveBack makes payments that [TakeDue] has taken due at once again: their tasks could
// not be enqueued. Those that have changed meanwhile are left alone.
func GiveBack(ctx context.Context, db postgres.DB, refs []Ref) error {
	purchases, versions := make([]uuid.UUID, len(refs)), make([]int64, len(refs))
	for i, ref := range refs {
		purchases[i], versions[i] = ref.PurchaseID, ref.Version
	}
	_, err := db.Exec(ctx, `
		UPDATE payments p SET due_at = clock_timestamp()
		FROM (SELECT p.purchase_id FROM payments p JOIN unnest($1::uuid[], $2::bigint[]) AS r (purchase_id, version) USING (purchase_id)
		      WHERE p.version = r.version AND p.lease_until IS NULL ORDER BY p.purchase_id FOR NO KEY UPDATE OF p SKIP LOCKED) f
		WHERE p.purchase_id = f.purchase_id`, purchases, versions)
	if err != nil {
		return fmt.Errorf("payment.GiveBack: %w", err)
	}
	return nil
}

// QueueWaiting notes why open payments wait, for people. It is no move of theirs, so
// their versions stay.
func QueueWaiting(b *pgx.Batch, purchases []uuid.UUID, reason string) {
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	b.Queue(`UPDATE payments SET waiting_for = $2, last_error = NULL WHERE purchase_id = ANY($1) AND finished_at IS NULL`, purchases, reason)
}
