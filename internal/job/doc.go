// Package outbox delivers jobs to workers, and owns the table outbox_messages.
//
// A [Message] is one task in the queue, for several jobs of one kind, written in the
// commit that makes the jobs.
//
//	[Accept] ── one commit: jobs and messages ──▶ [queue.Dispatcher] ──▶ queue ──▶ worker ──▶ [Delete]
//	                        ▲                                            │
//	                        └──────────── [Reissue] ◀── lost ────────────┘
//
// A task is enqueued after the commit, and no request waits for that. If that fails, or
// the queue loses the task, the sweep lost-jobs finds the overdue message ([FindOverdue])
// and issues it again. A worker puts jobs off whose campaign stays locked ([PutOff]): they
// wait without a task until the sweep finds the campaign free ([Resume]). So after every
// commit each queued job is in a message, and is delivered at least once. Package job makes
// its effect happen once. This package never changes a job.
package job
