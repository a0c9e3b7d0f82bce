// Package queue carries tasks to the workers, on asynq.
//
// A [Task] only says that there is work. Everything that must not be lost is in Postgres,
// and a lost task is enqueued again. Delivery is at least once. The package does not know
// the meaning of a task.
//
// A [Server] has an asynq server with its own share for every kind of task, so a backlog
// of one kind takes no slot of another.
//
// An idle worker waits for a bell, a list in Redis. Enqueuing a task, or giving it back, adds
// a ring in the same round trip. After the end of a delay the worker that has seen it rings, in
// a second one. Redis gives each ring to the worker of the kind that has waited longest. A
// [Server] polls all its queues once a second, for tasks without a ring: a queue was
// paused, asynqmon has enqueued, the ring was lost. [ringer] and [waiter] do this below asynq.
//
// asynq notices a dead worker only after 30 to 120 seconds. So every worker, and the
// scheduler that leads, writes to Redis that it is alive ([Presence]); a worker also which
// tasks it has ([Heartbeat]). [Finder.Find] tells whether the worker of a task is alive,
// [ReadPresent] which processes are.
//
// Redis keys, with the namespace ns of the settings:
//
//	asynq:{ns-<kind>}:…     asynq's own
//	ns:bell:<kind>          rings that no worker has heard yet, 16 at most (list)
//	ns:processes            until when <role>:<id> counts as alive, in ms (sorted set); kept 10 minutes longer
//	ns:active-task:<task>   the idempotency key of a task: IN_PROGRESS and the worker that has it
//	                        (TTL: that of a task)
package queue
