// Package outbox delivers jobs to workers. It owns the table outbox_messages: a
// [Message] is one task in the queue, for several jobs of one kind, and is written
// in the commit that makes the jobs.
//
//	[Accept] ── one commit: jobs and messages ──▶ [Dispatcher] ──▶ queue ──▶ worker ──▶ [Delete]
//	                        ▲                                        │
//	                        └────────── [Reissue] ◀── lost ──────────┘
//
// A task is enqueued after the commit, and no request waits for that. When that
// fails, or the queue loses the task, the message is still there: the sweep
// lost-jobs looks at overdue messages ([FindOverdue]) and issues the lost ones
// again. So after every commit each queued job is in a message, and is delivered at
// least once. Package job makes sure that it has its effect once. This package
// never changes a job.
package outbox
