// Package purchase owns purchases and their items: who bought which positions,
// for how much, and how it was paid. A purchase belongs to exactly one job.
//
//	pending ─▶ completed ─▶ cancelled
//	   │           └──────▶ refunding ─▶ refunded
//	   └─▶ failed
//
// A purchase is stored when it is completed. pending, failed and the refunds are
// for payment providers: nothing makes a pending or a refunding purchase yet.
//
// Package sale decides what is sold and in which transaction. This package only
// reads and writes the rows of a [Purchase], and reads the positions they refer to.
package purchase
