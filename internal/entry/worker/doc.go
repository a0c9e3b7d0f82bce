// Package worker is the entry point for tasks: it finalizes the jobs of outbox messages.
//
//	task ─▶ claim in Redis ─┬─▶ lanes (batches of sales, of cancellations) ─┬─▶ announce ─▶ delete the message
//	                        ├─▶ redelivery (tried before) ──────────────────┤
//	                        └─▶ serially (draws) ───────────────────────────┘
//
// Every kind has its own queue and its own share of the tasks in hand, so a flood of one
// takes no slot of another. A handler keeps its task until every job of it is final, so
// the task stays in the queue while there is work to do. For purchases and cancellations,
// handlers only wait: lanes do the work, in batches from many tasks. A campaign is always
// in the same lane, so one process does not compete with itself for the campaign's row,
// and the kinds take turns in it. How long a batch waits for locked rows is in waiting.go;
// tasks whose jobs stay locked keep half of the slots at most (locked.go).
//
// After a transient fault in a lane the handler waits and tries again, with a growing
// delay; such an attempt does not count. Jobs that were delivered before may be what kills
// workers. They are tried in small groups, and alone if they were in such a group already;
// those with the fewest attempts come first. No batch runs meanwhile, and the attempt is
// counted and committed before it is made. So a job that kills its worker delays few
// others, and is given up after worker.max_deliveries. An attempt that fails through its
// surroundings is uncounted, though they stay broken for long: see attempt.go.
//
// Draws do not stop for this: one may take a minute, and whoever waits to be alone holds
// back all lanes. A draw that kills its worker may so cost a job that was tried alone one
// attempt; from its own third delivery on it is alone itself.
//
// Payments at a provider are no jobs of messages: a payment is its own agenda, and a task
// only makes it sooner (payments.go). They have slots and connections of their own, and
// pass through the lanes only when their end is known.
//
// A worker keeps nothing that must not be lost: jobs and messages are in Postgres.
package worker
