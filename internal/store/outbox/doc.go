// Package outbox calls workers to jobs. It owns the table outbox_messages: a
// message is one task in the queue, for a bundle of jobs of one kind, and is
// written in the commit that makes the jobs.
//
//	[Accept] ── one commit: jobs and messages ──▶ [Dispatcher] ──▶ queue ──▶ worker ──▶ [Delete]
//	                        ▲                                        │
//	                        └────────── [Reissue] ◀── lost ──────────┘
//
// A task is enqueued after the commit, and nobody waits for that. Should it fail,
// or the queue forget the task, the message is still there: the sweep lost-jobs
// walks through the messages that are overdue ([FindOverdue]) and issues those
// that are lost again. So every queued job is in a message, at any committed
// moment, and is delivered at least once. That it has its effect once is for
// package job to see to, on which this package stands.
package outbox
