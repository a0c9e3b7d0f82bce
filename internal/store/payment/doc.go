// Package payment owns payments at a provider, their dated steps, and the provider's events.
//
//		reserved ─▶ creating ─▶ confirming ─┬─▶ action ─────┐
//		   │            │           │  ▲    ├─▶ processing ─┼─▶ capturing ─▶ captured ─┬─▶ settled
//		   │            │           │  └────┴───────────────┘                    ▲     └─▶ returned
//		   └────────────┴───────────┴──▶ expiring ─┬─▶ ended ─▶ cancelled ───────┤
//		                                           └─▶ late ─▶ ended ────────────┘
//
//	  - reserved: positions are reserved, nothing was sent.
//	  - creating: the idempotency key of an intent is stored; it is being created.
//	  - confirming: the intent's id is stored, and it may be confirmed from now on. So
//	    only what is fetched from the provider can end this payment.
//	  - action, processing: the buyer must authenticate; a slow method takes its time.
//	  - capturing: authorized, and the reservation stands: the money may be taken now.
//	  - captured: the provider has the money. What becomes of it is decided in a
//	    transaction of the sale: the positions (settled) or a refund (returned).
//	  - expiring: given up, for the reason in ending. Nothing is confirmed any more, the
//	    intent is being cancelled, and its positions are kept until that is certain.
//	  - late: the provider will not cancel it. Its positions are free again, and money
//	    that still comes is for the campaign's policy late_payment.
//	  - ended: the provider says that it was cancelled, or there never was an intent. Its
//	    positions can be given back.
//	  - settled, returned, cancelled: final. An event can wake a payment even then: money
//	    on a cancelled one makes it captured.
//
// What the provider says can be impossible. Such a payment waits for an operator, see
// [QueueSettle]: what the operator has found makes it captured or ended.
//
// A payment is its own agenda. due_at says when it must be looked at next; a task in the
// queue only makes it sooner. Whoever works on it claims it first: the claim lasts for a
// lease and counts up the version, and every later write names that version. A worker
// that was stopped for longer than its lease writes nothing, see [ErrFenced].
//
// Locks: payments come after campaigns and before positions, purchases and jobs.
package payment
