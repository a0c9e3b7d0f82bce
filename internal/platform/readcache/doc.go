// Package readcache lets many callers share reads.
//
// A [Cache] keeps a copy for a short time. Callers without a good copy wait for the same
// read. A caller says which copy is good enough ([Cache.Get]); otherwise it gets a read
// that began after its call. Such reads of one key are at least Settings.Pause apart.
//
// Errors are not kept. The cache is bounded by entries and by bytes; the least recently
// used entry goes first. [Weighed] is these bounds alone, for what is kept without an age.
package readcache
