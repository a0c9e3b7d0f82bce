// Package payments leads payments through their phases, and handles events of the provider.
//
//	task ─▶ claim ─▶ next move (decide.go) ─┬─▶ store the phase ─▶ call ─▶ store what came of it ─┐
//	             ▲                          ├─▶ give it back: due later, or when an event comes   │
//	             │                          └─▶ its end is known: a transaction of the sale       │
//	             └────────────────────────────────────────────────────────────────────────────────┘
//
// A [Runner] claims a payment and leads it as far as it goes now. What is next is a pure
// function of the stored phase and of what the provider has said in this run; the rest of
// the package is the I/O around it. It promises:
//
//   - An intent whose id is not stored is never confirmed, and a purchase confirms one
//     intent at most. A worker that was stopped writes nothing when it comes back, and a
//     call that it still makes is harmless: it is about the one intent, whose own state
//     allows each call once.
//   - From the phase confirming on, a payment ends only by what was fetched from the
//     provider. Whoever claims it asks first, and repeats no call blindly.
//   - Nothing is confirmed or captured when the time of the reservation is over; the
//     database decides at the write that comes before the call. Once capturing is stored,
//     the money is taken.
//   - What comes back must have our amount, currency, mode and purchase. What has not is
//     neither stored nor acted upon: the payment waits for an operator, loudly.
//   - No row is locked during a call, and no campaign is ever locked here.
//
// While the provider is away, slow or refuses, a payment waits with growing pauses, says
// so in its job, and the deadline of its reservation moves along, up to its bound.
//
// [Events] stores events by their ids, once each. What tells of our own calls, as most do,
// is handled with the statement that stores it. Any other event only wakes its payment;
// the runner then asks the provider, so the order of events does not matter. Only
// disputes are recorded as they are told. What the webhooks miss is listed ([Events.ListMissed]).
// [Dispatcher] enqueues tasks; a task that is lost costs time only, because a payment is
// due at some time.
//
// This package decides nothing about positions and purchases, see package sale.
//
// Failpoints, each with the purchase and its payment method:
//
//	payments.claim, payments.claimed                  around the claim, which moves what is reserved into creating
//	payments.<phase>.store, payments.<phase>.stored   around the write that moves a payment into a phase: creating
//	                                                  (with a further key), confirming, action,
//	                                                  processing, capturing, captured, expiring, ended
//	payments.<call>.call, payments.<call>.called      around a call: create, fetch, confirm, capture, cancel
//	payments.events.store, payments.events.stored     around the write of events; about nothing
//	payments.events.work, payments.events.worked      around the commit of what events do; about nothing
package payments

// The metadata of our objects at the provider.
const (
	purchaseField = "purchase_id"
	campaignField = "campaign_id"
)
