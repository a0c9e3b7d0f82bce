package sale

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/failpoint"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// Cancellation is the payload of a cancellation job: which purchase to cancel, or which
// positions of it, for whom and why.
type Cancellation struct {
	PurchaseID uuid.UUID        `json:"purchase_id"`
	Positions  []shape.Position `json:"positions,omitempty"` // none: all
	By         string           `json:"by"`                  // role:client, and /user when one was signed in
	Reason     string           `json:"reason,omitempty"`
	AnyTime    bool             `json:"any_time,omitempty"` // ignore the policy's deadline, and disputes, as for operators
}

// Cancelled is the result of a succeeded cancellation job.
type Cancelled struct {
	PurchaseID uuid.UUID       `json:"purchase_id"`
	State      purchase.State  `json:"state"`     // cancelled, or refunding when a card was charged; completed when others are left
	Positions  []purchase.Item `json:"positions"` // free again
	Amount     money.Amount    `json:"amount"`    // refunded to the wallet or the card, or for the app to refund; or it was never paid
	Currency   string          `json:"currency"`
	Board      int64           `json:"board_version"` // a board that has reached it shows them free
}

// Cancel finalizes cancellation jobs in one transaction: it cancels the purchases, frees
// their positions and refunds the wallets that paid. A job whose purchase cannot be
// cancelled fails; of several for one purchase, the first succeeds. Cancel ignores jobs
// that are final, wait for the end of a payment already, or do not exist. A job is Busy
// when its campaign, the wallet that paid, or an open payment is locked for longer than
// wait.
//
// A cancellation of some positions leaves the purchase completed, with the others; that of all
// that are left is one of the purchase.
//
// Money of a card is given back by a refund row of its own. While the bank has that
// money, because the charge is disputed, only operators cancel the purchase. A purchase that is being
// paid is not cancelled here: its payment is given up, and its end finalizes the
// cancellation (see [Seller.Conclude]).
//
// The campaign's lock makes cancellations and sales take turns. After a cancellation a
// position is free, so the next sale may not sell out the campaign. After the sale that
// freezes the campaign, a cancellation is refused.
func (s *Seller) Cancel(ctx context.Context, refs []job.Ref, wait Wait) (Report, error) {
	return s.run(ctx, "cancellation", refs, wait, cancel)
}

// cancel is the transaction.
func cancel(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait Wait) (Report, error) {
	in, err := lockCancellations(ctx, tx, refs, wait)
	if err != nil {
		return Report{}, err
	}
	payees, err := in.lockPayees(ctx, tx, wait)
	if err != nil {
		return Report{}, err
	}
	out := &returns{payees: payees, report: Report{Busy: in.busy, Locked: in.busy}}
	for _, c := range in.wanted {
		if err := out.decide(c); err != nil {
			return Report{}, err
		}
	}
	if err := out.write(ctx, tx); err != nil {
		return Report{}, err
	}
	failpoint.Hit("cancellation.commit", in.users)
	return out.report, nil
}

// isRefusal reports whether err refuses the cancellation; other errors are failures.
func isRefusal(err error) bool {
	code := fault.CodeOf(err)
	return code == fault.NotFound || code == fault.StateConflict || code == fault.PurchaseDisputed
}
