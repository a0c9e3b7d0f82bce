// Package campaign owns campaigns with their layers, prizes and commitments:
// what is sold, what can be won, and in which state the sale is.
//
//	pending ──▶ active ──▶ drawing ──▶ completed
//	   │          │
//	   └──────────┴──▶ cancelled
//
// pending: a draft, everything can be changed. active: published and on sale;
// a pause is a flag, not a state. drawing: every position is sold, or the sale has
// reached the end at which it is drawn; nothing about the campaign changes any more but
// its name, and the draw freezes the list. completed: the result of the draw is recorded. cancelled:
// nothing is sold any more, and what was sold is given back. A trigger refuses every other change of state,
// and every function here that changes the state names the state it expects.
//
// The row of a campaign is the lock of its sale. A transaction that changes
// positions, purchases or counters first calls [Lock] or [QueueLock], and reads
// what it decides on in a later statement. An [Execution] is a claim on the draw;
// it lasts longer than a transaction.
//
// This package never touches positions or purchases.
package campaign
