package payment

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// EndUnsent leads payments as far as they go without a provider, those that still have
// their versions and that no worker has. What is given up and has no intent has ended:
// nothing can have been paid. It returns the payments whose end is known, for a
// transaction of the sale, and those that wait for a key.
func EndUnsent(ctx context.Context, tx pgx.Tx, refs []Ref) (known, waiting []Ref, err error) {
	purchases, versions := make([]uuid.UUID, len(refs)), make([]int64, len(refs))
	for i, ref := range refs {
		purchases[i], versions[i] = ref.PurchaseID, ref.Version
	}
	var b pgx.Batch
	b.Queue(`SELECT FROM payments WHERE purchase_id = ANY($1) ORDER BY purchase_id FOR NO KEY UPDATE`, purchases) // the UPDATE alone has no order
	b.Queue(`
		UPDATE payments p SET phase = 'ended', version = p.version + 1, lease_until = NULL, faults = 0, waiting_for = NULL
		FROM unnest($1::uuid[], $2::bigint[]) AS r (id, version)
		WHERE p.purchase_id = r.id AND p.version = r.version AND p.phase = 'expiring' AND p.intent_id IS NULL
		  AND (p.lease_until IS NULL OR p.lease_until <= clock_timestamp())`, purchases, versions)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("payment.EndUnsent: %w", err)
	}
	known, err = postgres.Collect(ctx, tx, pgx.RowToStructByPos[Ref], `
		SELECT purchase_id, campaign_id, job_id, version FROM payments WHERE purchase_id = ANY($1)
		  AND (phase IN ('captured', 'ended') OR phase = 'expiring' AND uncancellable AND deadline <= clock_timestamp()) ORDER BY purchase_id`, purchases)
	if err != nil {
		return nil, nil, fmt.Errorf("payment.EndUnsent: %w", err)
	}
	waiting, err = postgres.Collect(ctx, tx, pgx.RowToStructByPos[Ref], `
		SELECT purchase_id, campaign_id, job_id, version FROM payments WHERE purchase_id = ANY($1)
		  AND finished_at IS NULL AND phase NOT IN ('captured', 'ended') AND waiting_for IS DISTINCT FROM $2 ORDER BY purchase_id`, purchases, WaitsForOperator)
	if err != nil {
		return nil, nil, fmt.Errorf("payment.EndUnsent: %w", err)
	}
	return known, waiting, nil
}
