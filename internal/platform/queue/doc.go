// Package queue carries tasks from the processes that accept work to the
// workers, on asynq. It knows nothing of what a task means.
//
// A [Task] only says that there is work: everything that must not be lost is in
// Postgres, and a lost task is enqueued again. Delivery is at least once.
//
// A [Server] has an asynq server for every kind of task, with a share of its own: so
// a backlog of one kind takes no slot of another, and none has to come first. asynq
// asks Redis for each queue by itself, so several servers ask no more than one would.
//
// asynq's own leases notice a dead worker only after 30 to 120 seconds. So every
// worker writes to Redis, at short intervals, that it is alive ([Heartbeat]), and
// which tasks it works on. [Finder.Find] uses this to tell whether the worker of a
// task is alive or dead.
//
// Redis keys, with the namespace ns of the settings:
//
//	asynq:{ns-<kind>}:…     asynq's own
//	ns:worker:<worker id>   exists while the worker is alive (TTL)
//	ns:active-task:<task>   the worker that works on the task (TTL: worker.task_timeout)
package queue
