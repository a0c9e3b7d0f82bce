package payments

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/store/balance"
	"triprize/internal/store/payment"
)

// noteUnknown notes payments that this installation has made at the provider, with money on
// them, and that our books do not know: after a restore, or a failover that has lost what
// was committed last. One that ended without money is no difference. Others use the
// account, too: theirs are ignored.
func (e *Events) noteUnknown(ctx context.Context, tx pgx.Tx, work *eventWork) error {
	if len(work.unknown) == 0 {
		return nil
	}
	ours, err := balance.Installation(ctx, tx)
	if err != nil {
		return err
	}
	var open, over []balance.Difference
	for _, event := range work.unknown {
		in, ok := e.reader.IntentIn([]byte(event.Payload))
		if !ok || in.Metadata[payprovider.InstallationKey] != ours.String() {
			continue
		}
		switch in.Status {
		case payprovider.Succeeded, payprovider.RequiresCapture, payprovider.Processing:
			open = append(open, unknownHere(in))
		case payprovider.Canceled:
			over = append(over, unknownHere(in))
		default:
			continue
		}
		work.outcomes[event.ID] = payment.EventRecorded
	}
	if _, err := balance.NoteTold(ctx, tx, over, true); err != nil {
		return err
	}
	work.missing, err = balance.NoteTold(ctx, tx, open, false)
	return err
}

func unknownHere(in payprovider.Intent) balance.Difference {
	amount := int64(in.Amount)
	d := balance.Difference{Kind: balance.UnknownHere, ObjectID: in.ID, ThereAmount: &amount, ThereCurrency: &in.Currency,
		Detail: "this installation has made the payment, it is " + string(in.Status) + " at the provider, and our books do not know it"}
	if id, err := uuid.Parse(in.Metadata[purchaseField]); err == nil {
		d.PurchaseID = &id
	}
	return d
}

// sayUnknown logs what a batch has noted, after its commit.
func (e *Events) sayUnknown(w *eventWork) {
	for _, d := range w.missing {
		e.logger.Error("a payment of ours at the provider is not in our books", "difference", d.ID, "intent", d.ObjectID, "purchase", d.PurchaseID,
			"amount", *d.ThereAmount, "currency", *d.ThereCurrency)
	}
}
