package cards

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment/reconciliation"
)

// recordUnknown records payments that this installation has made at the provider, with money on
// them, and that our books do not know: after a restore, or a failover that has lost what
// was committed last. One that ended without money is no discrepancy. Others use the
// account, too: theirs are ignored.
func (e *Events) recordUnknown(ctx context.Context, tx pgx.Tx, work *eventWork) error {
	if len(work.unknown) == 0 {
		return nil
	}
	ours, err := reconciliation.Installation(ctx, tx)
	if err != nil {
		return err
	}
	var open, over []reconciliation.Discrepancy
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
		work.outcomes[event.ID] = eventRecorded
	}
	if _, err := reconciliation.RecordReported(ctx, tx, over, true); err != nil {
		return err
	}
	work.missing, err = reconciliation.RecordReported(ctx, tx, open, false)
	return err
}

func unknownHere(in payprovider.Intent) reconciliation.Discrepancy {
	amount := int64(in.Amount)
	d := reconciliation.Discrepancy{Kind: reconciliation.UnknownHere, ObjectID: in.ID, ThereAmount: &amount, ThereCurrency: &in.Currency,
		Detail: "this installation created the payment; it is " + string(in.Status) + " at the provider, and we have no record of it"}
	if id, err := uuid.Parse(in.Metadata[payprovider.PurchaseKey]); err == nil {
		d.PurchaseID = &id
	}
	return d
}

// logUnknown logs what a batch has recorded, after its commit.
func (e *Events) logUnknown(w *eventWork) {
	for _, d := range w.missing {
		e.logger.Error("a payment of ours at the provider is not in our books", "discrepancy", d.ID, "intent", d.ObjectID, "purchase", d.PurchaseID,
			"amount", *d.ThereAmount, "currency", *d.ThereCurrency)
	}
}
