// Package job owns accepted work: the promise behind a 202, and the idempotency
// record of a request.
//
//	        ┌──────────────────────▶ succeeded
//	queued ─┤──▶ awaiting_action ──┬▶
//	        └──────────────────────┴▶ failed
//
// awaiting_action is for payments that need the buyer. A job that has begun a purchase
// ([QueueBegun]) is led to its end by the purchase's payment, and by nothing else.
//
// There are two ways to a job. An [Intake] makes queued jobs for workers; package
// outbox stores them with the messages that deliver them, at least once. [Once]
// and [OnceEach] do a command at once and leave a final job behind. Either way the
// effect happens exactly once:
//
//   - [QueueSettle] says WHERE state IN ('queued', 'awaiting_action'), in the
//     transaction of the job's effect, and a wrong row count rolls both back.
//   - UNIQUE (client, idempotency_key) gives the same job to all requests with the
//     same key; a request with another hash is told that the key is reused.
//   - From its second delivery on, a job's attempts are counted before it is tried
//     ([Begin]), so that a job that kills its worker is given up in the end.
//
// This package never enqueues anything.
package job
