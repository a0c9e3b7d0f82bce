package sale

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// Expire frees the positions of a reservation that was not paid in time. In the same
// transaction the purchase and its job fail with reservation-expired. It returns the
// settled job, or false when the reservation was paid or released in the meantime.
//
// It is for purchases without a payment at a provider. When there is such a payment,
// only the provider can say that it was not paid.
func (s *Seller) Expire(ctx context.Context, e purchase.Expired) (outcome job.Outcome, expired bool, err error) {
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := campaign.Lock(ctx, tx, e.CampaignID); err != nil {
			return err
		}
		if expired, err = purchase.StillExpired(ctx, tx, e); err != nil || !expired {
			return err
		}
		jobID, pending, err := purchase.Fail(ctx, tx, e.ID, fault.ReservationExpired)
		if err != nil {
			return err
		}
		if expired = pending; !pending {
			return nil
		}
		freed, err := inventory.FreeReserved(ctx, tx, e.CampaignID, e.ID)
		if err != nil {
			return err
		}
		outcome = job.Refused(jobID, fault.New(fault.ReservationExpired, "the payment did not arrive in time; the positions are free again"))
		var b pgx.Batch
		campaign.Changes{e.CampaignID: {Reserved: -freed}}.Queue(&b)
		job.QueueSettle(&b, []job.Outcome{outcome})
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return job.Outcome{}, false, fmt.Errorf("sale.Expire(%s): %w", e.ID, err)
	}
	return outcome, expired, nil
}
