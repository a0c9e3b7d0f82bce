// Package job owns accepted work: the promise behind a 202, and the record of its
// idempotency key.
//
//	        ┌──────────────────────▶ succeeded
//	queued ─┤──▶ awaiting_action ──┬▶
//	        └──────────────────────┴▶ failed
//
// awaiting_action is for payments that need the buyer. After [QueueBegun] only the payment
// of its purchase ends a job.
//
// [Accept] makes queued jobs for workers, with their messages; package outbox delivers these. [Once] and
// [OnceEach] do a command at once and leave a final job. Each effect happens exactly once:
//
//   - [QueueFinalize] says WHERE state IN ('queued', 'awaiting_action'), in the transaction
//     of the job's effect, and a wrong row count rolls both back.
//   - UNIQUE (client, idempotency_key) gives the same job to all requests with the same
//     key; a request with another hash is refused.
//   - From its second delivery on, a job's attempts are counted before it is tried
//     ([Begin]), so a job that kills its worker is given up.
//
// This package never enqueues anything.
package job
