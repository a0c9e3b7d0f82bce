// Package payment owns payments at a provider, their dated steps, and the provider's
// events.
//
//		reserved ─▶ creating ─▶ confirming ─┬─▶ action ─────┐
//		   │            │           │  ▲    ├─▶ declined ───┤
//		   │            │           │  │    ├─▶ processing ─┼─▶ capturing ─▶ captured ─┬─▶ settled
//		   │            │           │  └────┴───────────────┘                    ▲     └─▶ refund_due
//		   └────────────┴───────────┴──▶ expiring ─┬─▶ ended ─▶ cancelled ───────┤
//		                                           └─▶ late ─▶ ended ────────────┘
//
//	  - reserved: positions are reserved, nothing was sent.
//	  - creating: the idempotency key of an intent is stored; it is being created.
//	  - confirming: the intent's id is stored, and it may be confirmed. From now on only
//	    data from the provider can end this payment.
//	  - action, processing: the buyer must authenticate; a slow method takes its time.
//	  - declined: the buyer may bring another payment method until declined_until, see
//	    [QueueTry]. It is confirmed on the same intent.
//	  - capturing: authorized, and the reservation stands: the money may be taken now.
//	  - captured: the provider has the money. A transaction of the sale gives it the
//	    positions (settled) or a refund (refund_due).
//	  - expiring: given up, for the reason in ending. The intent is being cancelled, and its
//	    positions are kept until that is certain.
//	  - late: the provider will not cancel it. Its positions are free, and the campaign's
//	    policy late_payment decides about late money.
//	  - ended: it was cancelled at the provider, or there never was an intent. Its positions
//	    can be freed.
//	  - settled, refund_due, cancelled: final. Only money on a cancelled one makes it captured
//	    again.
//
// A payment in an unexpected state waits for an operator, see [QueueResolve].
//
// Payments are agenda items, see package agenda.
//
// Locks: payments come after campaigns and before positions, purchases and jobs.
package payment
