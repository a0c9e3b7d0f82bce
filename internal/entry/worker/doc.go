// Package worker is the entry point for tasks: it finalizes the jobs of outbox messages.
//
//	task ─▶ its key ────────┬─▶ shards (batches of sales, of cancellations) ─┬─▶ announce ─▶ delete the message
//	                        ├─▶ redelivery (tried before) ───────────────────┤
//	                        └─▶ serially (draws) ────────────────────────────┘
//
// Every kind has its own queue and slots, so a flood of one takes no slot of another. A
// handler keeps its task until all its jobs are final. For purchases and cancellations
// handlers only wait: shards do the work, in batches from many tasks. A campaign is always
// in the same shard, so one process does not compete with itself for the campaign's row,
// and the kinds take turns in it. shards.go has the waits for locked rows. Jobs whose rows stay
// locked for about a second wait in the outbox, without a task, until the sweep lost-jobs issues them.
//
// After a transient fault the handler tries again, with a growing delay; such an attempt
// does not count. Redelivered jobs may kill workers. They are tried together, then one by
// one, those with the fewest attempts first. No batch runs meanwhile, and the attempt is
// counted and committed before it is made. So such a job delays few others, and is given
// up after job.MaxDeliveries. See attempts.go.
//
// Draws do not stop for this, because one may take a minute. So a draw that kills its
// worker may cost another job one attempt; from its third delivery on no batch runs beside it.
//
// Payments at a provider are their own agenda, and a task only makes them sooner
// (payments.go). They have slots and connections of their own, and pass through the shards
// when their end is known.
//
// A worker keeps nothing that must not be lost: jobs and messages are in Postgres.
package worker
