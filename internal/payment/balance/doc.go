// Package balance owns what the provider's balance tells of our payments, and where our books differ.
// Those are balance transactions, the days that were listed, and differences. It owns the id
// of this installation, too.
//
// A day (UTC) is claimed, listed span by span, and compared. Each write is fenced by the
// version of its claim, so two schedulers list nothing twice.
//
// A transaction of a charge, refund or dispute is ours when our books know its intent or
// refund, when its metadata name this installation, or when a transaction of the same
// intent is ours. Others use the account, too: theirs are counted and not stored. All other
// transactions are of the account, and stored.
//
// A difference is found by its object and kind, once. It is closed when the books agree
// again, and comes back when they do not. An operator can explain it: then it rings no more.
//
//	          ┌──── explained ────┐
//	open ─────┤                   ├──▶ closed ─▶ open (found again)
//	          └───────────────────┘
//
// Locks: differences are inserted in the order of their objects, and come after payments.
package balance
