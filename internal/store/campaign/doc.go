// Package campaign owns campaigns, their layers, prizes and commitments: what
// is sold, what can be won, and in which state the sale is.
//
//	pending ──▶ active ──▶ drawing ──▶ completed
//	   │          │
//	   └──────────┴──▶ cancelled
//
// pending: a draft, everything can be changed. active: published and on sale;
// paused is a flag on it. drawing: every position is sold and the list is
// frozen; nothing can be changed. completed: the draw's result is recorded.
// A trigger refuses every other move, and every function here that moves a
// campaign names the state it comes from.
//
// The row of a campaign is the lock of its sale: whoever changes positions,
// purchases or counters first calls Lock or LockFree, and reads what it decides
// on in a later statement.
//
// Watch tells crowds how campaigns stand, for the price of one query per interval.
package campaign
