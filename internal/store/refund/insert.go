package refund

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// QueueInsert stores new refunds of ours. The state follows from the method: a wallet was credited
// in this transaction, an external one is listed for the app, and a card refund is open and due at
// once. The batch fails when those of a purchase would ask for more than was paid: by card what was
// captured, otherwise its amount. Of two batches at once that make one for the same
// purchase the second fails: both have the same number.
func QueueInsert(b *pgx.Batch, refunds []Refund) {
	n := len(refunds)
	ids, purchases, campaigns, users := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	methods, amounts, currencies, reasons := make([]string, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, r := range refunds {
		ids[i], purchases[i], campaigns[i], users[i] = r.ID, r.PurchaseID, r.CampaignID, r.UserID
		methods[i], amounts[i], currencies[i], reasons[i] = string(r.Method), int64(r.Amount), r.Currency, string(r.Reason)
	}
	b.Queue(`
		INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, number, state, due_at, finished_at)
		SELECT r.id, r.purchase_id, r.campaign_id, r.user_id, r.method, r.amount, r.currency, r.reason, before.n + r.nth,
		       CASE r.method WHEN 'wallet' THEN 'succeeded' WHEN 'external' THEN 'listed' ELSE 'open' END,
		       CASE WHEN r.method = 'card' THEN t.now END, CASE WHEN r.method = 'wallet' THEN t.now END
		FROM (SELECT u.*, row_number() OVER (PARTITION BY purchase_id ORDER BY id) AS nth, sum(amount) OVER (PARTITION BY purchase_id) AS together
		      FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])
		           AS u (id, purchase_id, campaign_id, user_id, method, amount, currency, reason)) r
		CROSS JOIN LATERAL (
			SELECT coalesce(max(number), 0) AS n, coalesce(sum(amount), 0) AS asked
			FROM refunds WHERE purchase_id = r.purchase_id AND number IS NOT NULL) before,
		     (SELECT clock_timestamp() AS now) t
		WHERE before.asked + r.together <= CASE WHEN r.method = 'card' THEN (SELECT received FROM payments WHERE purchase_id = r.purchase_id)
		                                   ELSE (SELECT amount FROM purchases WHERE id = r.purchase_id) END`,
		ids, purchases, campaigns, users, methods, amounts, currencies, reasons).Exec(postgres.Exactly(n, "new refunds"))
}
