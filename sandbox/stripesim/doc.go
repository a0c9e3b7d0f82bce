// Package stripesim is a simulator of Stripe: an HTTP server that a client of Stripe talks
// to without knowing. It keeps payment intents, charges, refunds, disputes and events,
// obeys idempotency keys, and sends signed webhooks. No money moves. It is for
// development and tests, and never for production.
//
// The payment method ([Methods]) chooses the course of a payment: Stripe's own test
// names, such as pm_card_visa, and names of its own for faults, such as
// pm_sandbox_timeout_after_charge. Faults for all requests, the clock, and the ends of slow
// payments are controlled under /sandbox, with the same key.
//
// The states of a payment intent:
//
//	            ┌── declined, not authenticated ──┐
//	            ▼                                 │
//	requires_payment_method ─┐                    │
//	                         ├─ confirm ─▶ requires_action ─▶ requires_capture ─ capture ─▶ succeeded
//	requires_confirmation ───┘      │                    └──────────────────────────────────▲
//	                                └────▶ processing (it cannot be cancelled) ─────────────┘
//
// Every state before succeeded can be cancelled, but for processing.
//
// Changes are in the journal on disk before they are answered, with the answer of their
// idempotency key. So a sandbox that was killed goes on where it was. Without a folder
// it keeps everything in memory.
//
// One lock guards all state. Nothing is sent, and nobody waits, while it is held.
package stripesim
