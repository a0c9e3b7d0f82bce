// Package lock keeps processes from doing the same work at once, on one Redis or on a
// quorum.
//
// A lock here proves nothing: its holder can be paused past the expiry, or servers can
// lose it. SQL guards what must not happen twice;
// docs/adr/0002-redis.md.
//
//	ns:lock:<name>  a random value of the holder, with an expiry
//
//	Acquire, While ── a majority says yes ──▶ held ── release ──▶ released
//	   │                                      │ ▲
//	   │                                      └─┘ While: extended by a majority, after a third of the remaining time
//	   │                                      │
//	   │                                      └─ expired, or no majority has it any more ──▶ lost: the work of While ends
//	   ├─ a majority answered, and another holder has it ──▶ tried again, then ErrTaken
//	   └─ no majority answered in time ──▶ ErrNoQuorum: the holder is unknown
//
// An expired lock is not extended or taken again; a lock that cannot be released expires.
// After three failures in a row a server gets no new locks for a second.
package lock
