// Package wallet owns wallets, and the ledger in which every movement of money
// between them, and between them and the world, is one entry.
//
//	                ┌─ capture (all of it) ─▶ captured
//	authorize ─▶ active ──── void ──────────▶ voided
//	              │ ▲  └──── time is over ──▶ expired
//	              └─┘
//	            capture (a part)
//
// Events are the truth. An entry has a side that gives (debit) and one that gets
// (credit); a side is a wallet or an account of the system. Each wallet that an
// entry touches gets one event, at the version after its last. Both are
// append-only. The row in wallets is what the events add up to: written in the
// same transaction, compared with them by every command, redone by the audit.
// Accounts of the system have entries only, so that nobody waits for them.
//
// Credits come from funding, which is the world outside, and debits and captures
// go there. Purchases go to sales, refunds come from refunds. So in every
// currency what the wallets have and what the accounts have is zero together.
// That sum is over posted entries, which move money. Entries of the kinds
// authorize, void and expire are pending: they change what is held, and move
// nothing; a capture moves money and gives free as much of what was held.
// A wallet may spend what is available: its balance less what is held.
//
// A Book is the one way to write. Open locks the rows of its wallets in the
// order of their ids, in a statement of its own, and in later ones adds up
// snapshot and events. Commands are then decided in memory, one after the other,
// each seeing what those before it did; a refused one has no effect. Write writes
// all of them at the versions that were read, in one round trip. So one
// transaction serves any number of commands on any number of wallets, and a hot
// wallet is locked once for all of them.
//
// Two guards keep an update from being lost, and each would do alone: the row
// lock makes commands take turns, and the version, which only one event of a
// wallet can have, fails whoever came without the lock (postgres.ErrRows). A Redis lock
// in front of both saves waiting and proves nothing.
//
// An authorization whose time is over, by the database's clock, is over, whether
// a sweep has tidied it up or not: before a command is refused for want of
// money, what its wallet may have back is given back.
package wallet
