// Package worker is the entry point for tasks: asynq delivers a message of the
// outbox, and the handler of its kind brings the message's jobs to their end.
//
//	task ─▶ claim in Redis ─┬─▶ lanes (batches of sales) ──────────┬─▶ announce ─▶ delete the message
//	                        ├─▶ redelivery (tried before) ─────────┤
//	                        └─▶ serially (draws, cancellations) ───┘
//
// A handler keeps its task until every job of it is final, so that the queue
// keeps the task as long as there is something to do. Handlers only wait; the
// work is done by lanes, which gather the jobs of many tasks. One campaign is
// always in the same lane, so one process never competes with itself for its row.
// Who waits for whom, and how long, is in waiting.go.
//
// Transient faults are waited out inside the handler, with a growing delay, and
// count against no job. Jobs that were delivered before are tried in small groups,
// and those that were in such a group already, alone: with everything else in the
// process held back, after the attempt was committed, and the least tried first.
// So a job that kills its worker takes few others along, holds up none, and is
// given up when its deliveries are used up.
package worker
