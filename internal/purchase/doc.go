// Package purchase owns purchases and their items: buyer, positions, amount, payment
// method.
//
// A purchase belongs to exactly one job.
//
//	pending ⇄ awaiting_action ─┬─▶ completed ─┬─▶ cancelled   (wallet, external)
//	                           │              └─▶ refunding ─▶ refunded   (card)
//	                           ├─▶ failed ────┬─▶ refunding
//	                           ├─▶ cancelled ─┘
//	                           └─▶ refunding
//
// An external or wallet purchase is stored when it is completed. A card purchase is
// pending while its payment goes on, and awaiting_action while that needs the buyer. A
// failed or unpaid cancelled one becomes refunding when money arrives after all.
//
// Positions of a completed purchase can be cancelled while others are left: it stays completed,
// and notes them as a [PartialCancellation].
//
// Package sale decides. This package reads and writes the rows of a [Purchase], and reads
// its positions.
package purchase
