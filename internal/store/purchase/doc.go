// Package purchase owns purchases and their items: who bought which positions,
// for how much, and how it was paid. A purchase belongs to exactly one job.
//
//	pending ─▶ completed ─▶ cancelled
//	   │           └──────▶ refunding ─▶ refunded
//	   └─▶ failed
//
// What sells them, and in which transaction, is package sale.
package purchase
