// Package job owns accepted work: the promise behind a 202, the idempotency
// record of a request, and the outbox that calls workers to it.
//
//	        ┌──────────────────────▶ succeeded
//	queued ─┤──▶ awaiting_action ──┬▶
//	        └──────────────────────┴▶ failed
//
// A job is committed before its request is answered. The same commit writes a
// ring: one task for all jobs of a kind in the flush. The task is enqueued after
// the commit, without anybody waiting for it; should that fail, or the queue
// forget it, the ring row is still there and the sweep lost-jobs rings again.
// So "at least once" is the queue's, and "exactly once" is this:
//
//   - Settle says WHERE state IN ('queued', 'awaiting_action'), in the
//     transaction of the job's effect, and a wrong row count rolls both back.
//   - UNIQUE (client, idempotency_key) gives one job to any number of requests
//     with the same key; another request hash is refused.
//   - From its second delivery on a job's attempts are counted before it is
//     tried (Begin), so that one that kills its worker is given up in the end.
package job
