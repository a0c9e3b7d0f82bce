// Package board owns the positions of campaigns: who has which, and for how long.
//
//	available ──▶ held ──▶ reserved ──▶ sold
//	    │  ▲        │         ▲  │        │
//	    │  └────────┴─────────┼──┘        │
//	    ├─────────────────────┘           │
//	    ├─────────────────────────────────▶
//	    └◀──────────── (a cancelled purchase)
//
// Every function that changes positions wants the campaign's row locked (see
// package campaign), and every UPDATE names the state and version it expects,
// so that a caller who forgets the lock fails instead of selling twice.
//
// The rank of a position is a secret random order over its campaign. "A random
// free position" is the first free one by rank: an index scan without a sort,
// and nobody outside can tell which comes next.
package board
