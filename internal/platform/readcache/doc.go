// Package readcache lets a crowd share reads. A [Cache] keeps a copy of what was read
// for a short time, and everybody who asks meanwhile gets that copy. Callers who find
// no good copy wait for the same read.
//
// A caller says what is good enough for it ([Cache.Get]). If the copy is not, it gets the
// result of a read that began after it asked, good enough or not. Such reads of one key
// are at least Settings.Pause apart, so a client that asks for what does not exist
// makes few of them, however often it asks.
//
// Errors are not kept. The cache is bounded by entries and by bytes; what nobody has
// asked for the longest time goes first.
package readcache
