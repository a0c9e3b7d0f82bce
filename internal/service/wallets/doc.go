// Package wallets carries out commands on wallets, each exactly once per
// idempotency key, many in one transaction.
//
//	claim keys ─▶ create wallets ─▶ lock wallets ─▶ read ─▶ decide, one by one ─▶ write ─▶ record answers
//
// Callers bring a batch: whatever commands have gathered, on any number of
// wallets, in the order in which they came. The order decides who gets the last of
// the money. One command that is refused fails alone. Every batch takes its locks
// in the same order (keys, new wallets by owner, wallets by id), so that batches
// never deadlock.
//
// A wallet that several commands of a batch are about is hot: others are likely
// to want it too. For those, and for those only, the Executor asks for a lock in
// Redis first, so that batches of several processes wait there and not in
// Postgres, each with a connection. It goes on without when it gets none: the
// row's lock makes them take turns, and the version decides.
package wallets
