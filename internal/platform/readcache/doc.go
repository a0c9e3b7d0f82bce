// Package readcache lets many callers share reads.
//
// A [Cache] holds copies for a short time. Callers without a valid copy wait for the same read. A caller
// decides which copy is recent enough ([Cache.Get]); otherwise it gets a read that began after its call.
// Such reads of one key are at least Settings.Pause apart.
//
// Errors are not cached. The cache is bounded by entries and by bytes; the least recently used entry is
// evicted first. [Weighed] has only these limits, for values without a maximum age.
package readcache
