// Package payments leads payments through their phases, and handles events of the
// provider.
//
//	task ─▶ claim ─▶ next move (decide.go) ─┬─▶ store the phase ─▶ call ─▶ store the result ──────┐
//	             ▲                          ├─▶ release it: due later, or at the next event       │
//	             │                          └─▶ its end is known: a transaction of the sale       │
//	             └────────────────────────────────────────────────────────────────────────────────┘
//
// A [Runner] claims a payment and leads it as far as possible. The next move is a pure
// function of the stored phase and of the provider's answers in this run. It promises:
//
//   - An intent whose id is not stored is never confirmed, and a purchase confirms one
//     intent at most. A worker that was stopped writes nothing, and a call that it still
//     makes is harmless: the intent's own state allows each call once.
//   - From the phase confirming on, only data from the provider ends a payment. A new
//     claim asks first, and repeats no call blindly.
//   - Nothing is confirmed or captured after the end of the reservation; the database
//     decides at the write before the call. After capturing is stored, the money is taken.
//   - An answer must have our amount, currency, mode and purchase. Otherwise nothing of it
//     is stored, an error is logged, and the payment waits for an operator.
//   - No row is locked during a call, and no campaign is ever locked here.
//
// While the provider is away, slow or refuses, a payment waits with growing pauses, its
// job says so, and the deadline of its reservation moves along, up to its bound. One that
// meets a refused key, or waits for long, waits for an operator, until the provider answers.
//
// [Events] stores events by their ids, once each. An event about our own call, as most
// are, is handled by the statement that stores it. Any other event only wakes its payment;
// the runner then asks the provider, so the order of events does not matter. Only disputes
// are recorded from events: one that is older changes nothing. [Events.ListMissed] lists events without a webhook.
// A lost task costs time only.
//
// Package sale decides about positions and purchases.
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
package cards

// The metadata of our objects at the provider.
const (
	purchaseField = "purchase_id"
	campaignField = "campaign_id"
)
