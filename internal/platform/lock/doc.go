// Package lock keeps several processes from doing the same thing at once, with
// redsync on one Redis or on a majority of several that know nothing of each
// other (Redlock). A lock here proves nothing: its holder can be paused past the
// expiry, or servers can forget it. What must not happen twice is guarded in
// SQL, always; docs/adr/0007-locks-are-crowd-control.md says what locks are for.
//
//	ns:lock:<name>  a random value of the holder, with an expiry
//
//	Acquire ── a majority says yes ──▶ held ── Release ──▶ given back
//	   │                                │ ▲
//	   │                                └─┘ extended after a third of what is left, by a majority
//	   │                                │
//	   │                                └─ run out, or a majority has it no longer ──▶ lost: Lost is closed
//	   ├─ a majority answered, and somebody else has it ──▶ tried again, then ErrTaken
//	   └─ no majority answered in time ──▶ ErrNoQuorum: nobody knows who has it
//
// A lock that ran out is not extended and never made anew; one that cannot be
// given back expires. A server that fails to answer three times in a row is not
// asked for new locks for a second, so that it does not slow down each of them.
package lock
