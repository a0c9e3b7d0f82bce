// Package wallet owns wallets and the ledger. Every movement of money between
// wallets, or between a wallet and the outside, is one entry of the ledger.
//
//	                ┌─ capture (all of it) ─▶ captured
//	authorize ─▶ active ──── void ──────────▶ voided
//	              │ ▲  └──── time is over ──▶ expired
//	              └─┘
//	            capture (a part)
//
// An entry has a side that gives (debit) and a side that gets (credit). A side is
// a wallet or an account of the system. Each wallet in an entry gets one event, at
// its next version. Entries and events are append-only, and they are the truth. The
// row in wallets is the sum of the events: it is written in the same transaction,
// compared with the events by every command, and computed again by the audit.
// Accounts of the system have no row, so no transaction waits for them.
//
// Credits come from the account funding; debits and captures go to it. The money of
// purchases goes to sales, and refunds come from refunds. So in every currency all
// wallets and accounts together sum to zero. Only posted entries count in that sum.
// Entries of the kinds authorize, void and expire are pending: they change what a
// wallet holds and move no money. A capture moves money and lowers what is held by
// the same amount. A wallet may spend its balance less what it holds.
//
// A [UnitOfWork] is the only way to write. [Open] locks the rows of its wallets in the
// order of their ids, and reads them in later statements. Commands are decided in
// memory, one after the other; each sees the effects of those before it, and a
// refused one has no effect. [UnitOfWork.Write] writes them all in one round trip, at the
// versions that were read. So one transaction serves many commands on many wallets,
// and a hot wallet is locked once for all of them.
//
// Two guards prevent lost updates, and each is enough alone. The row lock makes
// commands take turns. The version is unique per wallet and event, so a writer
// without the lock fails ([Lost]). A lock in Redis in front of them saves waiting
// and guards nothing.
//
// An authorization is over at its deadline by the database's clock, even before a
// sweep has ended it. A command that would fail for lack of money first ends the
// authorizations of its wallet that are over.
package wallet
