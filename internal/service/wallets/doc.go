// Package wallets carries out commands on wallets, each exactly once per
// idempotency key, many in one transaction.
//
//	claim keys ─▶ create wallets ─▶ lock wallets ─▶ read ─▶ decide, one by one ─▶ write ─▶ record answers
//
// Callers bring whatever commands have gathered: a crowd, on any number of
// wallets, in the order in which they came. The order decides who gets the last
// of the money. One command that is refused fails alone. Every crowd takes its
// locks in the same order (keys, new wallets by owner, wallets by id), so no two
// wait in a circle.
//
// Wallets that several commands of a crowd are about are hot: others are likely
// to want them too. For those, and for those only, the teller asks for a lock in
// Redis first, so that crowds of several processes wait there and not in
// Postgres, each with a connection. It goes on without when it gets none: the
// row's lock makes them take turns, and the version decides.
package wallets
