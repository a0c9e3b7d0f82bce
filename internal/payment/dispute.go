package payment

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// takenBack is the condition that nothing is left of what a payment y has received: what is lost in disputes, was
// refunded out of band, and what ours have refunded or owe still for parts that were cancelled.
const takenBack = `(y.amount_disputed > 0 AND y.paid <= y.amount_disputed + (
	SELECT coalesce(sum(r.amount), 0) FROM refunds r WHERE r.purchase_id = y.purchase_id AND (r.number IS NOT NULL OR r.state NOT IN ('failed', 'canceled'))))`

// released is the condition that a card purchase p was cancelled without a refund, since its dispute is lost: any other that was
// completed is refunding or refunded.
const released = `p.state = 'cancelled' AND p.completed_at IS NOT NULL`

// QueueTakenBack notes which of the purchases nothing is left of that was paid. It reads in a statement after
// the locks of their payments.
func QueueTakenBack(b *pgx.Batch, purchases []uuid.UUID, into map[uuid.UUID]bool) {
	b.Queue(`SELECT y.purchase_id FROM payments y WHERE y.purchase_id = ANY($1) AND `+takenBack, purchases).Query(func(rows pgx.Rows) error {
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		for _, id := range ids {
			into[id] = true
		}
		return err
	})
}

// Releases reports whether a purchase, whose payment is locked, is to be cancelled since its dispute is lost: it is completed,
// nothing is left of what was paid, and its campaign is active and has the policy.
func Releases(ctx context.Context, tx pgx.Tx, purchaseID uuid.UUID) (yes bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM payments y JOIN purchases p ON p.id = y.purchase_id JOIN campaigns c ON c.id = y.campaign_id
		WHERE y.purchase_id = $1 AND p.state = 'completed' AND c.state = 'active' AND c.policies ->> 'disputes' = $2 AND `+takenBack+`)`,
		purchaseID, campaign.DisputesRelease).Scan(&yes)
	return yes, fault.At(err, "payment.Releases(%s)", purchaseID)
}

// TooMuchBack returns what is wrong with the money of a payment that was disputed, which is locked; empty: nothing. The
// provider decides both: a bank takes back what was refunded before, or returns what it had taken. Money that was given back by
// hand after the dispute may stand for what the bank has taken, as amount_refunded of a purchase has it.
func TooMuchBack(ctx context.Context, tx pgx.Tx, purchaseID uuid.UUID) (wrong string, err error) {
	err = tx.QueryRow(ctx, `
		SELECT CASE WHEN y.amount_disputed > 0 AND y.paid < y.amount_disputed + back.amount
			THEN format('the buyer has %s of %s back: %s was refunded, and %s lost in disputes', y.amount_disputed + back.amount, y.paid, back.amount, y.amount_disputed)
			WHEN `+released+` AND NOT `+takenBack+`
			THEN 'the purchase was cancelled since its dispute was lost, and less is taken back than was paid: refund the rest at the provider' ELSE '' END
		FROM payments y JOIN purchases p ON p.id = y.purchase_id
		CROSS JOIN LATERAL (SELECT coalesce(sum(amount), 0) - overlap_of(y) AS amount FROM refunds WHERE purchase_id = y.purchase_id
			AND state IN ('pending', 'requires_action', 'succeeded', 'resolved')) back
		WHERE y.purchase_id = $1`, purchaseID).Scan(&wrong)
	return wrong, fault.At(err, "payment.TooMuchBack(%s)", purchaseID)
}

// disputed are the conditions on disputes d by their outcome, as lists name it.
var disputed = map[string]string{"open": `NOT d.closed`, "lost": `d.lost`, "won": `d.closed AND NOT d.lost`, "any": `true`}

// ListDisputed is [purchase.List] of purchases with a dispute of an outcome: open, lost, won or any. It goes along the disputes, which are few;
// the other fields of the filter are looked up by purchase.
func ListDisputed(ctx context.Context, db postgres.DB, outcome string, f purchase.Filter, p postgres.ListPage) (list []purchase.Purchase, next uuid.UUID, err error) {
	l := postgres.List[uuid.UUID]{From: `(SELECT DISTINCT d.purchase_id AS id FROM disputes d WHERE ` + disputed[outcome] + `)`, Alias: "d", Columns: "d.id",
		Scan: pgx.RowTo[uuid.UUID], ID: func(id uuid.UUID) uuid.UUID { return id }}
	of := func(column string) string { // a join would not keep the order
		return `(SELECT p.` + column + ` FROM purchases p WHERE p.id = d.id)`
	}
	l.OnlyOf(f.Who, of("client"), of("user_id"))
	l.Also(of("campaign_id")+` = ?`, f.CampaignID)
	if f.ID != uuid.Nil {
		l.Only(`d.id = ?`, f.ID)
	}
	for _, c := range [][2]string{{"user_id", f.UserID}, {"payment_reference", f.Reference}, {"state", string(f.State)}, {"payment_method", string(f.Method)}} {
		if c[1] != "" {
			l.Also(of(c[0])+` = ?`, c[1])
		}
	}
	ids, next, err := l.Page(ctx, db, p)
	if err == nil {
		list, err = purchase.GetAll(ctx, db, f.Who, ids)
	}
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("payment.ListDisputed: %w", err)
	}
	slices.SortFunc(list, func(a, b purchase.Purchase) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	return list, next, nil
}
