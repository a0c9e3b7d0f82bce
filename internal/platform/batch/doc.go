// Package batch merges many calls into few: calls that arrive during a flush share the next one.
//
// A [Coalescer] does this. A single call does not wait for others, unless Options.MinInterval is set.
// [Shards] are several coalescers, chosen by key. [Queues] have a queue per key, and requeue a locked
// key without delaying others.
//
//	Do ─▶ pending (bounded) ─▶ flusher 1..n ─▶ flush([]T) ─▶ []R ─▶ Do returns
//
// A flush has a maximum size and a timeout; Close flushes the rest. A failed flush is retried in halves
// until only the bad item fails, unless the error concerns all items (Options.Whole).
package batch
