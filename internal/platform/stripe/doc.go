// Package stripe speaks with Stripe: payment intents, refunds, events. It knows no table
// of ours and decides nothing about purchases.
//
// A call is one method of [Client]. It ends within the timeout of the settings, with an
// object as Stripe has it, or with an Error whose Kind says whether something may have
// been done. In between:
//
//	breaker ── open: unavailable ──▶ the caller
//	   │ closed, or a probe
//	pace ───── no turn in time: limited ──▶ the caller
//	   │ a turn of this process
//	request ── one HTTP exchange; its end is judged by status, code and by how far it came
//	   │
//	again? ─── at most twice more, with backoff: reads, and writes whose idempotency key
//	   │       makes it safe; never after a decline, a refusal or a stored 500
//	checks ─── livemode, id, amount, currency, metadata: else a mismatch, logged as an error
//
// Rules that callers rely on:
//
//   - A request that may have reached Stripe and got no answer that can be believed is
//     unknown. It stays unknown when a repetition does not reach Stripe at all.
//   - A key is good for 24 hours. Later it would do the same again: fetch by id then.
//   - A read does nothing at Stripe: when it fails it is unavailable, never unknown.
//   - Keys of the API, client secrets and card numbers are in no error and no log.
package stripe
