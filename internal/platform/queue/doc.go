// Package queue carries tasks to the workers, on asynq.
//
// A [Task] is only a notification. Everything that must not be lost is in Postgres, and a lost
// task is enqueued again. Delivery is at least once. The package does not interpret tasks.
//
// A [Server] runs one asynq server per kind of task, with its own concurrency, so a backlog
// of one kind takes no slot of another.
//
// An idle worker blocks on a wakeup list in Redis. Enqueuing or requeuing a task pushes a wakeup
// in the same round trip; the worker that forwards a task at the end of its delay pushes one in a
// second. Redis delivers each wakeup to the worker of the kind that has waited longest. A
// [Server] polls its queues once a second for tasks without a wakeup: after a pause of the queue,
// from asynqmon, or after a lost one. [notifier] and [waiter] implement this below asynq.
//
// asynq detects a dead worker only after 30 to 120 seconds. So every worker, and the scheduler
// that leads, sends heartbeats to Redis ([Presence]); a worker also records which tasks it holds
// ([Heartbeat]). [Finder.Find] reports whether the worker of a task is alive, [ReadProcesses]
// which processes are.
//
// Redis keys, with the namespace ns of the settings:
//
//	asynq:{ns-<kind>}:…     asynq's own
//	ns:wakeup:<kind>        wakeups that no worker has received yet, at most 16 (list)
//	ns:processes            until when <role>:<id> counts as alive, in ms (sorted set); kept 10 minutes longer
//	ns:active-task:<task>   the idempotency key of a task: IN_PROGRESS and the worker that holds it
//	                        (TTL: the timeout of a task)
package queue
