package payment

import (
	"triprize/internal/platform/personal"
	"triprize/internal/purchase"
)

const (
	ofPerson      = `t.purchase_id IN (` + purchase.OfPerson + `)`
	eventOfPerson = ofPerson + ` OR t.intent_id IN (SELECT y.intent_id FROM payments y WHERE y.purchase_id IN (` + purchase.OfPerson + `))`
)

// RefundsOfPerson selects the ids of the refunds of a person, see [personal.Table].
const RefundsOfPerson = `SELECT r.id FROM refunds r WHERE r.purchase_id IN (` + purchase.OfPerson + `)`

// WithPurchases are statements about the payments and refunds of purchases, see [purchase.Personal]: what a worker has read of them cannot be
// stored any more, and the user of the refunds is renamed.
var WithPurchases = []string{
	`UPDATE payments y SET version = y.version + 1 FROM purchases p WHERE p.id = ANY($1::text[]::uuid[]) AND y.purchase_id = p.id AND p.user_id = $3 AND p.user_id <> $2`,
	`UPDATE refunds r SET user_id = $2, version = r.version + 1 FROM purchases p WHERE p.id = ANY($1::text[]::uuid[]) AND r.purchase_id = p.id AND r.user_id = p.user_id AND p.user_id = $3`,
}

// Personal is what payments have of persons.
var Personal = []personal.Table{
	{Name: "payment_events", Of: eventOfPerson,
		Open: `(` + eventOfPerson + `) AND t.handled_at IS NULL`, Wipe: map[string]string{"payload": `''`}, Why: "what the provider has said of a payment", Till: "30 days"},
	{Name: "payment_steps", Of: ofPerson, Wipe: map[string]string{"detail": `NULL`, "declined_client": `NULL`, "declined_user": `NULL`}, Why: "the timeline of a payment", Till: "never"},
	{Name: "disputes", Of: ofPerson, Open: ofPerson + ` AND NOT t.closed`, Why: "money that a bank takes back", Till: "never"},
	{Name: "refunds", Of: ofPerson, Open: ofPerson + ` AND t.number IS NOT NULL AND t.state NOT IN ('succeeded', 'resolved')`,
		Wipe: map[string]string{"user_id": `(SELECT p.user_id FROM purchases p WHERE p.id = t.purchase_id)`, "resolved_by": `split_part(t.resolved_by, '/', 1)`, "resolve_reason": `CASE WHEN t.resolve_reason IS NOT NULL THEN 'erased' END`, "failure": `NULL`},
		Why:  "money that was given back", Till: "never"},
	{Name: "payments", Omit: []string{"last_error"}, Of: ofPerson, Open: ofPerson + ` AND t.finished_at IS NULL`, Wipe: map[string]string{"payment_method": `'erased'`, "return_url": `NULL`, "next_action": `NULL`, "decline": `NULL`,
		"last_error": `NULL`, "cancelled_by": `split_part(t.cancelled_by, '/', 1)`, "cancel_reason": `NULL`, "resolved_by": `split_part(t.resolved_by, '/', 1)`,
		"resolve_reason": `CASE WHEN t.resolve_reason IS NOT NULL THEN 'erased' END`, "resolve_reference": `CASE WHEN t.resolve_reference IS NOT NULL THEN 'erased' END`},
		Why: "how a purchase was paid", Till: "never"},
}
