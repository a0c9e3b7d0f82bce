// Package batch coalesces: callers that arrive while a flush is under way form
// the next flush together. One caller alone waits for nobody.
//
//	Do ─▶ pending (bounded) ─▶ flusher 1..n ─▶ flush([]T) ─▶ []R ─▶ Do returns
//
// The queue is bounded, a flush has a size and a timeout, and Close drains. A
// flush that fails as a whole is tried again in halves, so that one bad item
// fails alone, unless its error concerns all items alike (Options.Whole).
package batch
