// Package batch turns many calls into few: the calls that arrive while a flush is
// under way share the next flush ([Coalescer]). A single call does not wait for
// others, unless flushes are to be some time apart (Options.Every). [Lanes] are several coalescers, chosen by a key. [Queues] keep every key in
// a queue of its own, and let a key whose rows are locked rest without holding up
// the others.
//
//	Do ─▶ pending (bounded) ─▶ flusher 1..n ─▶ flush([]T) ─▶ []R ─▶ Do returns
//
// The queue is bounded, a flush has a limited size and a timeout, and Close
// flushes what waits. A flush that fails is tried again in halves, so that in the
// end only the bad item fails, unless the error concerns all items (Options.Whole).
package batch
