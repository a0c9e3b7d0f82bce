package sale

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
)

// ExpireReservations gives up to limit payments up whose deadline is over and that no
// worker has, in one transaction, and returns how many. Their positions stay reserved:
// the provider has to say first that they are not paid, see [Seller.Conclude].
func ExpireReservations(ctx context.Context, db postgres.Beginner, limit int) (n int, err error) {
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		expired, err := payment.Expire(ctx, tx, limit)
		if n = len(expired); err != nil || n == 0 {
			return err
		}
		purchases, jobs := make([]uuid.UUID, n), make([]uuid.UUID, n)
		for i, ref := range expired {
			purchases[i], jobs[i] = ref.PurchaseID, ref.JobID
		}
		var b pgx.Batch
		purchase.QueueNotAwaiting(&b, purchases)
		job.QueueNotAwaiting(&b, jobs)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return 0, fault.At(err, "sale.ExpireReservations")
	}
	return n, nil
}
