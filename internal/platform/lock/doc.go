// Package lock reduces contention between processes with locks in one Redis or in a quorum.
//
// A lock here guarantees nothing: its holder can be paused past the expiry, or servers can lose it. SQL
// guards what must not happen twice.
//
//	ns:lock:<name>  a random value of the holder, with an expiry
//
//	Acquire, While ── a majority accepts ───▶ held ── release ──▶ released
//	   │                                      │ ▲
//	   │                                      └─┘ While: extended by a majority, after a third of the remaining time
//	   │                                      │
//	   │                                      └─ expired, or no majority has it any more ──▶ lost: the work of While ends
//	   ├─ a majority answered, and another holder has it ──▶ retried, then ErrTaken
//	   └─ no majority answered in time ──▶ ErrNoQuorum: the holder is unknown
//
// An expired lock is neither extended nor taken again; a lock that cannot be released expires. After three
// consecutive failures a server gets no new locks for a second.
package lock
