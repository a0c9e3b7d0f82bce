// Package stripe calls Stripe: payment intents, refunds, events. It uses no tables and makes no decisions
// about purchases.
//
// A call is one method of [Client]. It ends within the timeout of the settings, with Stripe's object or with
// an Error whose Kind says whether the call may have had an effect. In between:
//
//	breaker ── open: unavailable ──▶ the caller
//	   │ closed, or a probe
//	limiter ── no slot in time: limited ──▶ the caller
//	   │ our own rate limit
//	request ── one HTTP exchange, classified by status, code and how far it came
//	   │
//	retry ──── at most twice, with backoff: reads, and writes whose idempotency key
//	   │       makes it safe; never after a decline, a refusal or a stored 500
//	checks ─── livemode, id, amount, currency, metadata: else a mismatch, logged as an error
//
// Rules that callers rely on:
//
//   - A request that may have reached Stripe and got no valid answer is unknown. It stays unknown if a
//     retry does not reach Stripe at all.
//   - An idempotency key is valid for 24 hours. Later it would repeat the effect: fetch by id instead.
//   - A failed read is unavailable, never unknown: it has no effect.
//   - No error and no log line has API keys, client secrets or card numbers.
package stripe
