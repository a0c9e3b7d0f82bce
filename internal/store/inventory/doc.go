// Package inventory owns what a campaign sells: its positions, and the holds that
// keep positions for a user for a short time.
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
// reserved is for purchases that wait for their payment at a provider. No deadline frees
// such a position: its payment decides.
//
// A hold:
//
//	active ─┬─▶ used      a purchase bought all of it
//	        ├─▶ released  its owner gave it back
//	        └─▶ expired   its deadline passed
//
// A hold and its positions change together, so each change of both is one function
// ([QueueHold], [QueueExtend], [QueueRelease], [QueueExpire], [QueueSell]). Each
// needs the campaign's row locked (package campaign). Each names the state or the
// version it expects and fails with postgres.ErrRows when other rows match: a
// caller that forgets the lock fails instead of selling a position twice. The
// caller changes the counters of the campaign in the same transaction.
//
// Each change of a position writes the campaign's board_version at that time into it, so
// that [Since] can tell what has changed on a board that somebody has seen.
//
// A hold is over at its deadline by the database's clock, even before a sweep has
// ended it: [GetHold] calls it expired, and its positions are shown as available.
// Every transaction that gives positions away locks the campaign, reads once which
// holds are over ([QueueFindOver]) and ends those. All its decisions use that one
// reading, so a purchase from a hold in its last millisecond gets all of it or
// nothing.
//
// The rank of a position is its place in a secret random order of the campaign. "A
// random free position" is the first free one by rank: an index scan without a
// sort, and nobody outside can predict it. [Selection] and [Stock] have the rules
// by which a request gets positions, the same for holds and for purchases.
package inventory
