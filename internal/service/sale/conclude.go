package sale

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/failpoint"
	"triprize/internal/store/job"
)

// Conclude decides, in one transaction, what becomes of payments whose end is known: those
// of purchase jobs, in any number of campaigns.
//
//   - captured: the positions are sold; or they are given back and the money is refunded,
//     because the campaign or the purchase was cancelled meanwhile. Late money, whose
//     positions are free again, gets others where the campaign says so.
//   - ended: the positions are free again, and the job fails or is cancelled. Positions of a
//     hold whose time is not over are its again, unless the buyer or the campaign has cancelled.
//   - expiring, over, and not to be cancelled: the positions are free again, and the
//     payment is late. Its job stays open; but what its buyer has cancelled is cancelled
//     now, and money that still comes is refunded.
//
// It does nothing about other payments. A job is Busy when the campaign or the row of its
// payment is locked for longer than wait.
func (s *Seller) Conclude(ctx context.Context, refs []job.Ref, wait Wait) (Report, error) {
	return s.run(ctx, "conclusion", refs, wait, s.conclude)
}

// conclude is the transaction.
func (s *Seller) conclude(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait Wait) (Report, error) {
	in, err := lockPayments(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	if err := in.findHolds(ctx, tx); err != nil {
		return Report{}, err
	}
	out := newConclusions(in.busy)
	var late []*conclusion
	for _, c := range in.payments {
		isLate, err := out.decide(c)
		if err != nil {
			return Report{}, err
		}
		if isLate {
			late = append(late, c)
		}
	}
	if len(late) > 0 {
		if err := s.facts.Fill(ctx, tx, in.campaigns); err != nil {
			return Report{}, err
		}
	}
	if err := out.reassign(ctx, tx, late); err != nil {
		return Report{}, err
	}
	if err := out.leaveFinal(ctx, tx); err != nil {
		return Report{}, err
	}
	if err := out.write(ctx, tx); err != nil {
		return Report{}, err
	}
	if err := s.startDraws(ctx, tx, in.campaigns, out.changes, &out.report); err != nil {
		return Report{}, err
	}
	failpoint.Hit("conclusion.commit", in.users)
	return out.report, nil
}
