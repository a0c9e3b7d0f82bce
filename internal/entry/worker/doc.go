// Package worker is the door through which tasks come in: asynq delivers a
// ring, the handler of its kind brings the ring's jobs to their end.
//
//	task ─▶ claim in Redis ─┬─▶ lanes (batches of sales) ──────┬─▶ announce ─▶ ring done
//	                        ├─▶ warily (tried before) ─────────┤
//	                        └─▶ singly (draws, cancellations) ─┘
//
// A handler holds its task until every job of it is final, so that the queue
// keeps the task as long as there is something to do. Handlers only wait; the
// work is done by lanes, which gather the jobs of many tasks. One campaign is
// always in the same lane, so one process never fights itself for its row.
//
// Faults of the surroundings are waited out inside the handler, with a growing
// delay, and count against nobody. Jobs that were delivered before are tried in
// small groups, and those that were in such a group already, the suspects, alone:
// with everything else in the process held back, after the attempt was committed,
// and the least tried first. So a job that kills its worker takes few along, is
// in nobody's way, and is given up when its deliveries are used up.
package worker
