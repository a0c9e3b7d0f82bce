// Package refund owns money that goes back: one row per purchase that is given back,
// by the way it was paid.
//
//		card      open ─▶ pending ⇄ requires_action ─▶ succeeded
//		            ▲        └───────────┴──────┬──────────┘
//		            │                           ▼
//		            └──────── retry ─── failed, canceled ─▶ settled
//		wallet    succeeded
//		external  listed ─▶ settled
//
//		  - open: a refund is to be made at the provider. attempt says whether its
//		    idempotency key is stored: from then on it may exist there.
//		  - pending, requires_action: it exists, and its end is not known. What needs an
//		    action needs it from the buyer: no operator can end it before the provider does.
//		  - succeeded: the money is with the buyer or on its way. Even then a bank can send
//		    it back, and the provider says failed.
//		  - failed, canceled: the provider has refused it, and failure says why. It waits for
//		    an operator: [QueueRetry], with a key of its own, or [QueueSettle].
//	  - stuck, beside open, pending and requires_action: the provider refuses to tell of
//	    it, so time alone will not help. An operator has it looked at again, or settles it.
//	  - listed: the app has the money, so the app gives it back, and settles it.
//		  - settled: given back by hand. Final: nobody looks at it again.
//
// A card refund is its own agenda, as a payment is: due_at says when it must be looked
// at next, a claim lasts for a lease and counts up the version, and every later write
// names the version. A worker that was stopped for longer than its lease writes
// nothing, see [ErrFenced].
//
// One purchase has one row, however often it is tried: the schema says so. The row is
// inserted in the transaction that takes the purchase back.
//
// Locks: refunds come after campaigns and payments, before positions and purchases.
package refund
