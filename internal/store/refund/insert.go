package refund

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
)

// QueueInsert stores new refunds of ours, the first of their purchases. The state follows from
// the method: a wallet was credited in this transaction, an external one is listed for the app,
// and a card refund is open and due at once. The batch fails when a purchase has one of ours
// already.
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
		SELECT r.*, 1, CASE r.method WHEN 'wallet' THEN 'succeeded' WHEN 'external' THEN 'listed' ELSE 'open' END,
		       CASE WHEN r.method = 'card' THEN t.now END, CASE WHEN r.method = 'wallet' THEN t.now END
		FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])
		     AS r (id, purchase_id, campaign_id, user_id, method, amount, currency, reason),
		     (SELECT clock_timestamp() AS now) t`,
		ids, purchases, campaigns, users, methods, amounts, currencies, reasons).Exec(postgres.Exactly(n, "new refunds"))
}
