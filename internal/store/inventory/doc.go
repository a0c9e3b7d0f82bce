// Package inventory owns what a campaign sells: its positions, and the holds that
// keep some of them for a user for a while.
//
// A position:
//
//	available ──▶ held ──▶ reserved ──▶ sold
//	    │  ▲        │         ▲  │        │
//	    │  └────────┴─────────┼──┘        │
//	    ├─────────────────────┘           │
//	    ├─────────────────────────────────▶
//	    └◀──────────── (a cancelled purchase)
//
// A hold:
//
//	active ─┬─▶ used      a purchase took all of it
//	        ├─▶ released  its owner gave it back
//	        └─▶ expired   its time was over
//
// A hold and its positions change together, so every change of them is one
// operation here ([QueueHold], [QueueExtend], [QueueRelease], [QueueExpire],
// [QueueSell]). Each wants the campaign's row locked (package campaign), names the
// state and version it expects, and fails with postgres.ErrRows when it touches
// other rows than it means: a caller who forgets the lock fails instead of selling
// twice. The counters of the campaign are the caller's to change with it.
//
// A hold is over at its deadline by the database's clock, whether or not a sweep
// has noticed: [GetHold] says expired, positions are shown as available, and every
// transaction that wants positions first reads which holds are over ([DueSQL]) and
// ends them. What is over is read once, after the campaign is locked, and
// everything else in that transaction goes by it: so a purchase from a hold in its
// last millisecond gets all of it or nothing.
//
// The rank of a position is a secret random order over its campaign. "A random
// free position" is the first free one by rank: an index scan without a sort, and
// nobody outside can tell which comes next. [Selection] and [Stock] are the rules
// by which a request gets positions, the same for holds and for purchases.
package inventory
