// Package batch turns many calls into few: calls that arrive during a flush share the next
// one.
//
// A [Coalescer] does this. A single call does not wait for others, unless Options.Every
// sets a pause. [Shards] are several coalescers, chosen by a key. [Queues] keep every key
// in a queue of its own, and put a locked key off without delaying others.
//
//	Do ─▶ pending (bounded) ─▶ flusher 1..n ─▶ flush([]T) ─▶ []R ─▶ Do returns
//
// A flush has a size and a timeout, and Close flushes the rest. A failed flush is tried
// again in halves until only the bad item fails, unless the error concerns all items
// (Options.Whole).
package batch
