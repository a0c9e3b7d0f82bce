// Package purchase owns purchases and their items: who bought which positions,
// for how much, and how it was paid. A purchase belongs to exactly one job.
//
//	pending ⇄ awaiting_action ─┬─▶ completed ─┬─▶ cancelled   (wallet, external)
//	                           │              └─▶ refunding ─▶ refunded   (card)
//	                           ├─▶ failed ────┬─▶ refunding
//	                           ├─▶ cancelled ─┘
//	                           └─▶ refunding
//
// A purchase that is paid external or by wallet is stored when it is completed. One that
// is paid by card is pending while its payment goes on, and awaiting_action while that
// needs the buyer. A failed one, or one that was cancelled before it was paid, becomes
// refunding when money appears on it after all.
//
// Package sale decides what is sold and in which transaction. This package only
// reads and writes the rows of a [Purchase], and reads the positions they refer to.
package purchase
