// Package worker is the entry point for tasks: it finalizes the jobs of outbox messages.
//
//	task ─▶ its key ────────┬─▶ shards (batches of sales, of cancellations) ─┬─▶ announce ─▶ delete the message
//	                        ├─▶ redelivery (tried before) ───────────────────┤
//	                        └─▶ serially (draws) ────────────────────────────┘
//
// Every kind has its own queue and slots, so a flood of one takes no slot of another. A
// handler holds its task until all its jobs are final. Handlers of purchases and cancellations
// only wait for shards, which finalize jobs in batches from many tasks. A campaign always
// belongs to the same shard, so one process does not compete with itself for the campaign's row,
// and the batches of the kinds alternate. shards.go has the waits for locked rows. Jobs whose rows
// stay locked for about a second go back to the outbox, without a task, until the sweep lost-jobs
// issues them.
//
// After a transient fault the handler retries with backoff; such an attempt does not count. A
// redelivered job may be one that kills workers. Redelivered jobs are tried together, then one by
// one, those with the fewest attempts first. No batch runs meanwhile, and each attempt is counted
// and committed before it begins. So such a job delays few others, and is discarded after
// job.MaxDeliveries. See attempts.go.
//
// Draws keep running meanwhile, because one may take a minute. So a draw that kills its worker may
// cost another job one attempt; from its third delivery on no batch runs beside it.
//
// Payments at a provider are leased items, and a task only starts them earlier (payments.go). They
// have their own slots and connections, and are settled through the shards.
//
// A worker has no state that must not be lost: jobs and messages are in Postgres.
package worker
