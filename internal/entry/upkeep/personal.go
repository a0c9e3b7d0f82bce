package upkeep

import (
	"slices"

	"triprize/internal/approval"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/person"
	"triprize/internal/purchase"
	"triprize/internal/trail"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
)

// Personal is what all tables have of persons, in the order in which they are erased.
func Personal() person.Stored {
	found := purchase.OfPerson + ` UNION ` + inventory.OfPerson + ` UNION ` + wallet.OfPerson + ` UNION ` + wallet.EntriesOfPerson + ` UNION ` + payment.RefundsOfPerson
	ids := found + ` UNION ` + job.OfPerson + ` UNION ` + reconciliation.OfPerson + ` UNION ` + approval.About(found)
	return person.Stored{Recipients: webhook.Recipients(ids), Tables: slices.Concat(
		trail.Personal(ids), approval.Personal(ids), webhook.Personal(ids), job.Personal(ids), inventory.Personal(purchase.OfPerson),
		payment.Personal, reconciliation.Personal, purchase.Personal(append(payment.WithPurchases, inventory.WithPurchases)...), wallet.Personal)}
}
