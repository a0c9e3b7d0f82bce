// Package queue carries tasks from the processes that accept work to the
// workers, on asynq. It knows nothing of what a task means.
//
// A task is a call to work, never the work itself: everything that must not be
// lost is in Postgres, and a task that is lost is issued again. Delivery is at
// least once.
//
// Beside asynq's own bookkeeping, whose leases notice a dead worker only after
// 30 to 120 seconds, every worker says every few seconds that it is alive
// ([Heartbeat]) and which tasks it is at work on, so that [Finder.Find] can tell a
// task that somebody works on from one whose worker is dead.
//
// Redis keys, with the namespace ns of the settings:
//
//	asynq:{ns-<kind>}:…     asynq's own
//	ns:worker:<worker id>   exists while the worker is alive (TTL)
//	ns:active-tasks         hash: task id → worker id
package queue
