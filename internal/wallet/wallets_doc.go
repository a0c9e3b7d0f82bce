// Package wallets carries out commands on wallets, each exactly once per idempotency
// key. A [Batcher] gathers commands; an [Executor] carries out a batch in one
// transaction.
//
//	claim keys ─▶ create wallets ─▶ lock wallets ─▶ read ─▶ decide, one by one ─▶ write ─▶ record answers
//
// A batch has commands on any number of wallets, in order of arrival. The order decides
// which command gets the last money. A command that is refused does not affect the
// others. Every batch takes its locks in the same order (keys, new wallets by owner,
// wallets by id), so batches cannot deadlock.
//
// A wallet in several commands of a batch is hot: batches of other processes probably
// need it too. For hot wallets only, the Executor takes a lock in Redis first. So the
// batches of several processes wait there, and do not each hold a connection to
// Postgres. Without that lock the Executor goes on: the row lock and the version in
// package wallet are what guards the money.
package wallet
