// Package campaign owns campaigns with their layers, prizes and commitments, and their
// lock.
//
//		pending ──▶ active ──▶ drawing ──▶ completed
//		   │          │
//		   └──────────┴──▶ cancelled
//
//	  - pending: a draft; everything can be changed.
//	  - active: published and on sale. A pause is a flag, not a state.
//	  - drawing: every position is sold, or the sale has reached the end at which it is
//	    drawn. Only the name can change.
//	  - completed: the result of the draw is recorded.
//	  - cancelled: the sale is over, and purchases are taken back.
//
// A trigger refuses every other transition, and every function here names the state that
// it expects.
//
// The row of a campaign is the lock of its sale. A transaction that changes positions,
// purchases or counters first calls [Lock] or [QueueLock], and reads in a later statement.
// An [Execution] is a claim on the draw; it lasts longer than a transaction.
//
// This package never touches positions or purchases.
package campaign
