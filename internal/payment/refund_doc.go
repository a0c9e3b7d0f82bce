// Package refund owns money that goes back, for every way of payment. Refunds of ours are
// numbered from 1 on for each purchase. Those that others have made at the provider, out of
// band, have no number.
//
//		card      open ─▶ pending ⇄ requires_action ─▶ succeeded
//		            ▲        └───────────┴──────┬──────────┘
//		            │                           ▼
//		            └──────── retry ─── failed, canceled ─▶ resolved
//		wallet    succeeded
//		external  listed ─▶ resolved
//		out of band   pending, requires_action, succeeded, failed, canceled: as the provider tells
//
//	  - open: a refund is to be made at the provider. attempt says whether its idempotency
//	    key is stored: from then on it may exist there.
//	  - pending, requires_action: it exists, and its end is not known. The second waits for
//	    the buyer.
//	  - succeeded: the money is with the buyer or on its way. Even then a bank can send it
//	    back, and the provider says failed.
//	  - failed, canceled: the provider has refused it, and failure says why. It waits for an
//	    operator: [QueueRetry], with a key of its own, or [QueueResolve].
//	  - stuck, beside open, pending and requires_action: the provider refuses to tell of it,
//	    refuses the key, or has not answered for long. An operator retries or resolves it; it
//	    goes on by itself when the provider answers.
//	  - listed: the app has the money, so the app refunds and resolves it.
//	  - resolved: given back by hand. Final.
//
// Card refunds are agenda items, see package agenda.
//
// Refunds are inserted in the transaction that takes the purchase, or a part of it, back. One of a
// purchase is made at a time: each asks for what the others leave.
//
// Locks: refunds come after campaigns and payments, before positions and purchases.
package payment
