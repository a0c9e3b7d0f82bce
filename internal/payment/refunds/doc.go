// Package refunds makes card refunds at the provider, each once; operators resolve the
// rest.
//
//	claim ─┬─ nothing was sent ───▶ store the key ──────────────────────────┬─▶ create ─┐
//	       └─ it may exist, ──────▶ list the intent's refunds ─┬─ not there ─┘           ├─▶ write
//	          or others do                                     └─ there, or nothing left ┘
//
// [Runner.Run] leads one refund as far as possible. No call is made in a transaction or
// while a row is locked, and nothing is refunded twice:
//
//   - The key re:<refund>:<attempt> is stored before the first call with it. The
//     provider makes one refund for a key, for 24 hours.
//   - When a refund may exist (a worker died, an answer was lost, an event came, an operator
//     retries), or is refused, the refunds of the intent are listed first. The one with the
//     stored id is taken, or else one with our id in its metadata. The others are noted, and ours
//     asks for what is left; when nothing is, it has succeeded with the amount 0.
//   - A key that may be older than 23 hours is not used again. It is replaced sooner only for
//     all that is left of the charge (then the provider refuses a second refund), after a refusal, or when
//     the provider repeats a fault that it has stored under the key: that call is over. A
//     smaller amount has the same key.
//   - One that was resolved by hand is only looked for: until the provider has answered, and
//     when an event tells of it.
//
// Intent, amount and currency of each answer are checked. A difference changes no state:
// it is logged, counted, and looked at again slowly.
//
// A refund that succeeds makes its purchase refunded, and a later failure makes it
// refunding again, in the transaction that writes the refund: refunds, then purchases. A
// refused refund waits for an operator, see [Service].
//
// Failpoints, each with the id of the purchase:
//
//	refunds.claimed         nothing was called yet
//	refunds.attempt.stored  the key is stored, and not yet used
//	refunds.called          the provider has answered, and nothing of it is stored
//	refunds.written         the answer is stored
package refunds
