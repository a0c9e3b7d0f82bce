package reconciliation

import (
	"triprize/internal/platform/personal"
	"triprize/internal/purchase"
)

// OfPerson selects the ids of the discrepancies of a person, see [personal.Table].
const OfPerson = `SELECT d.id FROM payment_discrepancies d WHERE d.purchase_id IN (` + purchase.OfPerson + `)`

// Personal is what discrepancies have of persons.
var Personal = []personal.Table{{Name: "payment_discrepancies", Of: `t.purchase_id IN (` + purchase.OfPerson + `)`,
	Wipe: map[string]string{"explanation": `CASE WHEN t.explanation IS NOT NULL THEN 'erased' END`}, Why: "why the provider's balance differs from the books", Till: "retention.books"}}
