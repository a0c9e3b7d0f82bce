// Package inventory owns positions and holds, and the rules of selection.
//
// A position:
//
//	available ──▶ held ──▶ reserved ──▶ sold
//	    │  ▲        │         ▲  │        │
//	    │  └────────┴─────────┼──┘        │
//	    ├─────────────────────┘           │
//	    ├─────────────────────────────────▶
//	    └◀──────────── (a cancelled purchase)
//	available ◀──▶ blocked (by an operator)
//
// reserved is for purchases that wait for their payment at a provider. No deadline frees
// such a position: its payment decides.
//
// A hold:
//
//	active ─┬─▶ used      a purchase bought all of it
//	        ├─▶ released  its owner released it
//	        └─▶ expired   its deadline passed
//
// A hold and its positions change together, by one function ([QueueHold], [QueueExtend],
// [QueueRelease], [QueueExpire], [QueueSell]). Each needs the campaign's row locked
// (package campaign), and names the state or version that it expects. It fails with
// postgres.ErrRows when other rows match, so a caller without the lock cannot sell a
// position twice. The caller changes the counters of the campaign in the same transaction.
//
// Each change of a position writes the campaign's board_version, so a reader of a version can be told what
// has changed.
//
// A hold is over at its deadline by the database's clock, also before a sweep: [GetHold]
// calls it expired, and its positions are shown as available. Every transaction that gives
// positions away locks the campaign, reads once which holds are over ([QueueFindOver]) and
// ends those. So a purchase from a hold in its last millisecond gets all of it or nothing.
//
// The rank of a position is its place in a secret random order of the campaign. "A random
// free position" is the first free one by rank: an index scan that no outsider can
// predict. [Selection] and [Stock] have the rules by which a request gets positions, for
// holds and purchases.
package inventory
